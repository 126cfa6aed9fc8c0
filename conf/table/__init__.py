"""The options of tables: their meaning, and their values with types."""
