"""Cross-partition upserts: rows whose keys are looked up in a key index over the whole table."""
