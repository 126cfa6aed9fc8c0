"""The handle that users hold, and each of its operations in this process."""
