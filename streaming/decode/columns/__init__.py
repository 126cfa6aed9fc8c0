"""Computed columns, conditions on rows, and expectations."""
