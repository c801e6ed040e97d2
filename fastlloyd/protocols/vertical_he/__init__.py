"""Vertical k-means under CKKS: parties hold different columns of the same records.

Source: Mazzone et al., "Privacy-preserving vertical k-means clustering" ("Vertical HE" below).
"""
