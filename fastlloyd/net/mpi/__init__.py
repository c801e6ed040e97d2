"""Frames over MPI, and how MPI was launched. Only `transport.py` imports mpi4py."""
