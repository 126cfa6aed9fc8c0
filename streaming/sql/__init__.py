"""Runs SQL statements, with a Spark session or without."""
