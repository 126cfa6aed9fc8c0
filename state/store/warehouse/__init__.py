"""Tables by name: the databases and tables of a warehouse."""
