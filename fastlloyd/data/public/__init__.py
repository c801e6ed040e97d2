"""Public data sets: embedded, in a folder, or generated. `papers/` fetches and makes those of the papers.

=============  ===========================================================================================
`named.py`     sets by name: those of `embedded/`, of a folder, any file
`mixture.py`   generated mixtures: with server data of another distribution, and for vertical protocols
=============  ===========================================================================================
"""
