"""Where bad records go: a folder, a table, a topic; and how they are run through their job again."""
