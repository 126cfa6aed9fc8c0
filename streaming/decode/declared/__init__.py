"""The columns and keys that records declare for their table."""
