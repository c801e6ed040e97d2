"""Public and secret streams of random bits, and the labels that separate their uses."""
