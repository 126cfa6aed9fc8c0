"""What a process counts and measures of itself, and where that is shown."""
