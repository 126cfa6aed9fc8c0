"""Jobs of several tables: which table a record goes to, and the settings of each table."""
