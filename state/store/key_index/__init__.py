"""Which partition and bucket a key lives in: the RocksDB index of cross-partition tables."""
