"""Shaped networks of namespaces on one machine, for trying a distributed program out."""
