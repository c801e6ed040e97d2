"""The prime field of SecFC: packed elements, Lagrange codes, and finding wrong answers.

=============  ====================================================================
`prime.py`     arithmetic modulo a product of primes; `residue.py`, prime by prime
`wide.py`      integers of more than 64 bits; `fraction.py`, the signs of elements
`pack.py`      elements as bytes; `draw.py`, from random bytes
`lagrange.py`  Lagrange codes; `zero_sum.py`, what hides all but the sums asked for
`locate.py`    wrong answers, found and named
=============  ====================================================================
"""
