"""What a table says of itself: its schemas, snapshots, manifests, tags, branches, consumers and live files."""
