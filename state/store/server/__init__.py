"""What servers of catalogs answer: databases over SQL, and Paimon's REST catalog."""
