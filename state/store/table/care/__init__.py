"""Maintenance of a table: tags, branches, expiry, and repairs by hand."""
