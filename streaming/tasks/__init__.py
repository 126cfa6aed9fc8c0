"""What runs on executors, and what crosses between them and the driver."""
