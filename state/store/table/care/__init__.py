"""Keeping a table: tags, branches, expiry, and what is done by hand."""
