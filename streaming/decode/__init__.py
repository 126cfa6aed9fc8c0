"""Values of records become rows of a table."""
