"""What the life of every party is made of besides its rounds: hello, plan, seed, pairs, alignment, farewell."""
