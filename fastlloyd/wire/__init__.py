"""The lowest room: who is who, frames, message numbers, and strict decoding of what comes from outside."""
