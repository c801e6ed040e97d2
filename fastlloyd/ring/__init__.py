"""Integer arithmetic that cannot lose a bit unnoticed: fixed point over Z_2^b."""
