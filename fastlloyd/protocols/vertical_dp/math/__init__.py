"""Local clustering, estimates from sketches, grid weights: free of messages."""
