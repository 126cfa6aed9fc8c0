"""Computes conditions and expressions in Spark SQL over Arrow columns."""
