"""Reading a table: its rows in every form that other libraries take."""
