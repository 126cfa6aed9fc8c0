"""Aggregate functions such as `sum`, computed on whole columns."""
