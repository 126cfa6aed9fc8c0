"""Conditions and expressions in Spark's SQL, computed over Arrow columns."""
