"""What the parties compute on ciphertexts: circuits, scales, comparisons, projections."""
