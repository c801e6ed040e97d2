"""The command line: one file per subcommand.

==========================  ============================================================================================
`choose.py`, `init.py`      before a run: which protocol, and its run file
`keygen.py`, `roster.py`    who takes part
`plan.py`, `check.py`       what a run would do; problems of one party's records and its key
`dossier.py`, `agree.py`    what data protection officers need to know; a site's approval
`run.py`                    all ranks of a run, supervised
`serve.py`, `join.py`       a run over one open port; `site.py`, a client that stays
`init_state.py`             a party's state directory; `ledger.py`, what was spent under it; `runs/`
`release.py`, `discard.py`  the decision about a held result
`report.py`, `label.py`     show a finished run again; label new records; `cite/`, what to cite
`bounds.py`                 find bounds of columns that nobody knows
`describe.py`               plan and run a description of the clusters of a finished run
`bench.py`, `compare/`       the papers' figures, and comparisons, by the distribution in `papers/`
`datasets.py`               public sets
`doctor.py`                 problems of this environment; `completion.py`, for shells
`options/`                  the flags of a run, and what commands share
==========================  ============================================================================================
"""

COMMANDS = {
    "choose": "name the protocol and setting that fit, and what noise to expect",
    "init": "write a commented run file and a template of the bounds",
    "run": "run all ranks on this machine or a host list, supervised, with a progress bar",
    "serve": "serve a run for sites that no mpirun can start: one open port",
    "join": "join a run as one of its clients, over outgoing TCP only",
    "site": "stay as a client: take run files from a folder, ask for consent, join one after the other",
    "check": "check one party's file alone; contacts nobody",
    "dossier": "write what a data protection officer needs to know of a run before it happens",
    "agree": "show this site what it would take part in, and sign its approval",
    "init-state": "make a party's state directory, once, before its first run with it",
    "ledger": "show what the runs of a state directory have spent, and what is left",
    "runs": "list all runs of a state directory: when, with whom, epsilon, verdict, result",
    "release": "show the result that a run with --review holds, and release it",
    "discard": "refuse the result that a run with --review holds, and remove it",
    "bounds": "find bounds of columns that nobody knows, with noise",
    "describe": "describe the clusters of a finished run by public columns, with noise",
    "label": "label new records with released centroids",
    "report": "show a finished run again, or verify its privacy from the ledger",
    "cite": "print what to cite for a run, as BibTeX: the software and the protocol's paper",
    "plan": "show what a run would do: rounds, noise, ring, bytes; no data needed",
    "bench": "regenerate a paper's table or figure with our figures beside the published ones",
    "compare": "run protocols and own methods on own tables: CSV, page and curve",
    "datasets": "list the public data sets, fetch them, or make them from public files",
    "keygen": "make this party's key and certificate",
    "roster": "add, show or check pinned certificates",
    "doctor": "check this environment and say what to fix",
    "completion": "print the script that lets a shell complete commands and flags",
}
"""The subcommands, in the order in which people meet them, and one line about each."""
