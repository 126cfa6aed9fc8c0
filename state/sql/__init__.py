"""SQL text → frozen statements: Flink's spelling and Spark's, parsed by sqlglot."""
