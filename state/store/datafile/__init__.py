"""Data files, written and read: Parquet, ORC and Avro behind one pair of writer and reader."""
