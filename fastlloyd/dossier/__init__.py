"""What a site reads and signs before a run: the dossier for its officers, and its approval.

====================  ============================================================================================
`choice.py`           which protocol fits
`planned_run.py`      a run before it happens
`study.py`            finished runs on the same records, and what all spend together
`content.py`          its dossier, from public facts alone; `blocks.py`, its building blocks, and as Markdown
`standing.py`         its texts: what epsilon says, what a run does not promise, what holds for every run
`approval.py`         a site's signed approval; `own_part.py`, what it covers of the settings that stay there
`consent.py`          what `agree` and `site` show and ask before it is signed
`verify.py`           what a finished run's ledger and signatures prove, and whether it complied with an approval
====================  ============================================================================================
"""
