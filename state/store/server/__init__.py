"""Clients for the servers of catalogs: SQL databases, and Paimon's REST catalog."""
