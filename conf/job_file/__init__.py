"""Reading a job file: Java's properties syntax, and references to texts outside of the file."""
