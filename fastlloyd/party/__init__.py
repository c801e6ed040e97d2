"""What a party is: a coroutine that yields effects, the layouts of its messages, its options and plans.

================  =================================================================================
`effects.py`      what a party may ask of its runner
`declaration.py`  what a message class declares (size, route, who can read it); how much a peer may send
`message.py`      layouts of messages
`option.py`       an option of a run, declared once
`plain_plan.py`   what all plans share
`transcript.py`   digests of every broadcast, compared to detect equivocation
================  =================================================================================
"""
