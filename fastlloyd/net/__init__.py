"""Transports: frames between ranks, in memory, over MPI or over TCP, counted and delayed."""
