"""The metadata files of a table (schemas, snapshots, manifests, tags, branches, consumers), and the table's live data
files.
"""
