"""Finds the values that are missing in rows whose key changed."""
