"""SQL statements, carried out without Spark."""
