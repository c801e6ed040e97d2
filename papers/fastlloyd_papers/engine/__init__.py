"""What all benchmarks need: cells, runner, machine, tables, and the list of benchmarks.

=============  ================================================================================================
`registry.py`  which benchmarks there are; `sitting.py` runs all of them
`generate.py`  public data, dealt out to clients
`runner.py`    one run under mpirun; `memory.py`, all parties in this thread; `shaped.py`, on a shaped network
`peer.py`      the FastLloyd authors' own code, timed
`cells.py`     what is measured, kept at once
`machine.py`   where it was measured; `quiet.py`, whether others used the machine; `origin.py`, at which commit
`tables.py`    summaries and tables; `chart.py`, charts; `files.py` writes them aside
`publish.py`   puts results in place, where they replace nothing more complete
=============  ================================================================================================
"""
