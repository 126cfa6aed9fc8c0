"""Reads and writes data files in the formats Parquet, ORC and Avro, through one reader and one writer."""
