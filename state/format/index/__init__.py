"""Reads and writes index files (deletion vectors, key hashes, bloom filters) and the manifest that lists them."""
