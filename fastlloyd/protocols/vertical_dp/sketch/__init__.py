"""Flajolet-Martin sketches with phantoms, and what they cost."""
