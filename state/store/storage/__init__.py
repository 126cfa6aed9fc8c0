"""Bytes and where they lie: one protocol for files, its local and remote forms, their errors and their clock."""
