"""Coding, masks and orders: what the parties compute, free of messages."""
