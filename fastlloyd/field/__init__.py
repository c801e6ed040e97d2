"""The prime field of SecFC: packed elements, Lagrange codes, and finding wrong answers."""
