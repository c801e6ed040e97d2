"""`fastlloyd run`: starts the ranks, watches them, and says what became of them.

===============  ====================================================================================================
`supervisor.py`  starts mpirun, owns the terminal, leaves nothing
`watched.py`     tells that a rank or its host is gone; `lifeline.py`, which one ended first
`output.py`      what a launcher and its ranks write, taken apart; `banner.py`, the words of launchers
`verdict.py`     from how ranks ended to one exit code and one sentence
`process.py`     processes that are not our children
`hosts.py`       ranks on other hosts; `shaped.py`, on a shaped network of this one
`site.py`        a client that stays; `offers.py`, what it reads; `aggregate.py`, a server between clients and server
===============  ====================================================================================================
"""
