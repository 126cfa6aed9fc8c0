"""The code that runs on executors, and the messages between executors and the driver."""
