"""Compaction plans of a table: their files, and working on them."""
