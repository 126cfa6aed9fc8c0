"""What records declare of the table that they are rows of."""
