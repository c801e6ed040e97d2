"""The papers' data sets: fetched and checked, or made of public files that others may not hand on.

=============  ================================================================================================
`command.py`   `fastlloyd datasets download` and `make`
`origin.py`    where sets come from, and how each is made of its files
`download.py`  puts sets into a folder; `fetch.py` gets one file, `store.py` writes the tables
`make.py`      makes sets of files that others do not hand on; `source.py`, what its makers share
`census.py`    the US census; `kaggle.py`, taxis and loans
`posts.py`     Stack Overflow; `example.py` reads its records
=============  ================================================================================================
"""
