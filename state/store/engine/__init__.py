"""How work on a table is carried out: one run of stages, in this process or by another engine."""
