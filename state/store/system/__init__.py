"""System tables: what a table says of itself, as rows, with Paimon's columns."""
