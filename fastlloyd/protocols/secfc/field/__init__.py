"""The prime field of SecFC: packed elements, Lagrange codes, and wrong answers.

=============  ====================================================================
`prime.py`     arithmetic modulo a product of primes
`residue.py`   the same prime by prime, and the signs of elements
`pack.py`      elements as bytes, and from random bytes
`lagrange.py`  Lagrange codes, and wrong answers, found and named; `zero_sum.py`, masks that hide all but the sums
=============  ====================================================================
"""
