"""Frames over one open TCP port: the server's door, and the spoke that joins it."""
