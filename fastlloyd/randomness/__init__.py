"""Public and secret streams of random bits, and the labels that keep one use apart from another."""
