"""Tables by name: databases and tables of a warehouse."""
