"""Decoding Avro: turns the bodies of records into Arrow arrays."""
