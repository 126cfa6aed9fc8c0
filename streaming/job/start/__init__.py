"""What a start needs and can miss, found before Spark starts; and Spark's JVM, from its start to its end."""
