"""FastLloyd and its baselines: masked sums over the clients, noise from the server.

`settings.py` holds the paper's symbols and formulas, `plan.py` what follows from them for one run,
`messages.py` the exchange, `client.py` and `server.py` the two roles, `reference.py` the same algorithm
without messages. `glloyd`, `sulloyd` and `lloyd` differ in their plan only.
"""
