"""Jobs of several tables: from the job file to the query that writes them."""
