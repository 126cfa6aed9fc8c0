"""Engines carry out the work on a table, in this process or in other processes."""
