"""The key index of cross-partition tables: it stores the partition and bucket of each key, in RocksDB."""
