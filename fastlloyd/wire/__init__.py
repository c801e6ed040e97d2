"""The lowest layer: party ids, frames, message numbers, and strict decoding of external input."""
