"""Data files: Parquet, ORC and Avro with one writer and one reader for all."""
