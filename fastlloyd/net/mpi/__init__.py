"""Frames over MPI, and how MPI was launched. One file imports mpi4py."""
