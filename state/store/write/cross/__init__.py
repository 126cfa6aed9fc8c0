"""Writes tables whose keys can move between partitions: keys are looked up in a key index over the whole table."""
