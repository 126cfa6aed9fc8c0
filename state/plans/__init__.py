"""What is to be compacted, by whom, and what came of it: values, their JSON, and the rules of leases."""
