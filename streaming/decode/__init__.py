"""Values of records → rows of a table."""
