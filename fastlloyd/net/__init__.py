"""Transports: frames between ranks, over MPI or over TCP, counted and delayed."""
