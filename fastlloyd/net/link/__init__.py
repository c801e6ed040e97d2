"""What runs on any transport: protected frames between two parties, and an agreed end."""
