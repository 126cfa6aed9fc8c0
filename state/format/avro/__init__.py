"""Reads and writes Avro containers and Avro data files in the form that Paimon's Java code writes."""
