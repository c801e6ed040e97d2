"""What a party is: a coroutine that asks for effects, the shapes of its messages, what it keeps for a resume."""
