"""Codecs of index files: deletion vectors, hashes of keys, and the manifest that names them."""
