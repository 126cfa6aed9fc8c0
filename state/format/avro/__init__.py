"""Avro containers and data files, as Java writes them."""
