"""Reads a table: returns its rows in the forms that other libraries take."""
