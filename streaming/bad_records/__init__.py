"""Storing bad records in a folder, a table or a topic, and reading them again for a replay."""
