"""Parses SQL text, in the spelling of Flink or Spark, into immutable statement objects. The parser is sqlglot."""
