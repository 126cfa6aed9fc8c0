"""Jobs of several tables: to which table each record goes, and the settings of each table."""
