"""The options of tables: what each means, and what they say together, as values with types."""
