"""Merges sorted runs into one. The table's merge engine decides what becomes of the rows of a key."""
