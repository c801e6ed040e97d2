"""Public data sets: embedded, in a folder, or generated. `papers/` fetches and makes those of the papers.

=============  ================================================================================================
`named.py`     sets by name: those of `embedded/`, of a folder, any file; `folder.py`, where that folder is
`mixture.py`   mixtures with server data of another distribution; `vertical_mixture.py`, for vertical protocols
=============  ================================================================================================
"""
