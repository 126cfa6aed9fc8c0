"""Where bad records go: a folder, a table or a topic; and how a replay reads them again."""
