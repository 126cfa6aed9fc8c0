"""Conversions for special kinds of values, whole columns at a time."""
