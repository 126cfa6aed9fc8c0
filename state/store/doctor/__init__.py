"""What is wrong with a table, looked for and said; nothing is mended here."""
