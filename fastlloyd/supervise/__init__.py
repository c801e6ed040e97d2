"""`fastlloyd run`: starts the ranks, watches them, and reports how they ended.

================  ====================================================================================================
`supervisor.py`   starts mpirun, owns the terminal, leaves nothing
`launch.py`       one run from a configuration, or the two of `--bounds private`
`lifeline.py`     which rank or host was lost first
`output.py`       what a launcher and its ranks write, separated
`verdict.py`      one exit code and one sentence from the ends of all ranks
`process.py`      processes that are not our children
`shaped.py`       ranks on a shaped network of this host
`site.py`         a client that serves a site permanently; `offers.py`, what it reads; `joined.py`, the runs that it
                  joins; `runs.py`, what it keeps of them; `status.py`, what it says
`aggregate.py`    a server between clients and server
`environment.py`  what is wrong with this environment
================  ====================================================================================================
"""
