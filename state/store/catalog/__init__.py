"""The metadata files of a table: schemas, snapshots, manifests, tags, branches, consumers; and its live files."""
