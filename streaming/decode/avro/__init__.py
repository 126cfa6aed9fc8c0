"""Avro bodies become Arrow arrays."""
