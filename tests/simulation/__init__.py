"""A world that can be replayed from a seed: processes, storage, clocks and faults in one Python process."""
