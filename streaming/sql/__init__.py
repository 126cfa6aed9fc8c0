"""SQL statements over a Spark session, or without one."""
