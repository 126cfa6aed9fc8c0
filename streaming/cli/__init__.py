"""The command line: `program` starts it, one module for each group of commands."""
