"""Aggregate functions, on whole columns."""
