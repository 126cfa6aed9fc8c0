"""Data files: Parquet, ORC and Avro behind one writer and one reader."""
