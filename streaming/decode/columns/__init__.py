"""Columns that are computed, rows that are chosen, and what is expected of rows."""
