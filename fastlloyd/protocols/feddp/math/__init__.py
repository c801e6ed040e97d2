"""What is computed from records and noisy sums, free of messages."""
