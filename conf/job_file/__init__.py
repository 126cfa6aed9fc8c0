"""What stands in the text of a job file: properties, and references to what is not in it."""
