"""Reads job files: Java's properties syntax, and references to values outside the file (environment variables and other
files).
"""
