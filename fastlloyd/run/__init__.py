"""One party's run over real links: configuration, inputs, driver, state, outcome; and all parties in memory.

================  ===============================================================================================
`config.py`       everything a user may set, checked; `run_file.py` reads and writes it as a run file
`promise.py`      what one unit of privacy is in a run, in words; `work.py`, what a run computes
`inputs.py`       what is the same at all parties: public parameters, bounds, caps, the public set of a demonstration
`own_records.py`  a party's own records, loaded and checked
`own_rank.py`     which party this is, and how it proves it
`horizontal.py`   set-up, plan and secrets of masks where clients hold their own records
`vertical.py`     the same where parties hold different columns
`session.py`      what one party's run starts from, and what runs ask of a protocol
`checks.py`       checks at the start of every run with a plan and a ledger, and what a crash can leave behind
`execute.py`      one party's run over real links; `rank.py`, the process around it
`driver.py`       carries out what a party asks of its links; `inbox.py`, messages that wait
`machine.py`      carries out what a party asks of its machine
`state.py`        what it keeps between runs; `budget_terms.py`, what holds over all of them
`history.py`      which runs there were, with whom, and how they ended
`closing.py`      the end over real links; `outcome.py`, what a party has then; `files.py`, what it writes
`simulation.py`   all parties in one thread: hands messages from one to the other
================  ===============================================================================================
"""
