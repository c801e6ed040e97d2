"""What a party is: a coroutine that asks for effects, the shapes of its messages, what it keeps for a resume.

===============  =====================================================================
`effects.py`     what a party may ask of its runner
`declaration.py` what a message says about itself: size, way, who can read what in it
`message.py`     shapes of messages; `message_bounds.py`, how much a peer may send
`option.py`      an option of a run, declared once
`plain_plan.py`  what plans have in common
`stored.py`      what a client kept of an interrupted run
`transcript.py`  what it was told that others were told too
===============  =====================================================================
"""
