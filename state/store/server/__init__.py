"""Clients for the servers of catalogs: databases over SQL, and Paimon's REST catalog."""
