"""The options of tables: their definitions, the rules for combining them, and their parsed values."""
