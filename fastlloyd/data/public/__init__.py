"""Public data sets: embedded, in a folder, downloaded, or generated.

=============  ================================================================================================
`named.py`     sets by name: those of `embedded/`, of a folder, any file; `folder.py`, where that folder is
`mixture.py`   mixtures with server data of another distribution; `vertical_mixture.py`, for vertical protocols
`origin.py`    where sets come from, and how each is made of its files
`download.py`  puts sets into a folder; `fetch.py` gets one file, `store.py` writes the tables
`make.py`      makes sets of files that others do not hand on; `source.py`, what its makers share
`census.py`    the US census; `kaggle.py`, taxis and loans
`posts.py`     Stack Overflow; `example.py` reads its records
=============  ================================================================================================
"""
