"""Clients with threshold masks against a server that lies: what it can open, by the product's own parties."""
