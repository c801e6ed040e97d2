"""Regenerates the papers' tables and figures with our figures beside the published ones."""
