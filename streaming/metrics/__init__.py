"""Metrics: what a process counts and measures about itself, and where it shows them."""
