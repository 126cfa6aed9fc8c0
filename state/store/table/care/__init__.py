"""Maintains a table: tags, branches, expiry, and repairs that a user starts."""
