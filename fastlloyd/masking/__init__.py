"""Fixed point over Z_2^b, and the masks on it: common to all clients, or one for each pair."""
