"""A year of `fastlloyd serve` and `fastlloyd site`: run after run, with kills, full disks and cut flows in between.

::

    __main__.py   months: sessions until the run of a month is over; a line of JSON for each month
    parties.py    folders, services and timers of the operator and the sites
    faults.py     what is drawn: who is killed, whose disk is full, which flow is cut, and when
    checks.py     what has to hold after each session: ledgers, outcomes, status, codes, processes, memory
"""
