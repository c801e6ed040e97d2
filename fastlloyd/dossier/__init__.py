"""What a site is told before a run, and what it signs: the dossier for its officers, and its approval.

====================  ============================================================================================
`planned_run.py`      a run before it happens
`content.py`          its dossier, from public facts alone; `blocks.py`, what it is made of; `markdown.py`, as text
`shared_messages.py`  what several protocols send alike
`words.py`            what epsilon and delta say
`open_points.py`      what a run does not promise; `standing.py`, what holds of every run
`approval.py`         a site's signed approval
`kept.py`             whether a finished run kept to it; `verify.py`, what its ledger and its signatures prove
====================  ============================================================================================
"""
