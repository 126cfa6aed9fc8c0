"""The handle that users hold, and the operations on it in this process."""
