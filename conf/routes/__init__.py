"""Jobs of several tables: which table a record goes to, and what is said of each table."""
