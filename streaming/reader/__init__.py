"""Tables as sources of Spark: batch reads and streams of changes."""
