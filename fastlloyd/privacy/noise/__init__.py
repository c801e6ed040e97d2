"""Exact samplers of noise: continuous rounded to the grid, and discrete."""
