"""System tables: the metadata of a table as rows, with Paimon's columns."""
