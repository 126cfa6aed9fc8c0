"""The key index of cross-partition tables: the partition and bucket of each key, in RocksDB."""
