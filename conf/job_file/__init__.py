"""The text of a job file: Java properties, and references to texts that are not in the file."""
