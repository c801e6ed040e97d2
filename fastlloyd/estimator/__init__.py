"""Federated k-means as a scikit-learn estimator, all parties in memory.

`estimator.py`  the class; a fit takes effect completely or not at all
`parameter.py`  parameters, and the forms of bounds
`records.py`    the forms of X
`words.py`      sentences of a run in the words of a Python caller
`fitting.py`    rows that lack a value, the run in memory, and what it leaves
`inputs.py`     records and columns of each owner, and the inputs of the parties
`account.py`    what fits spend, and budgets that copies share
`caution.py`    the warnings of a fit
`finding.py`    bounds that nobody knows, found with noise before a fit
`showing.py`    the page, the figures and the notebook's display
`description.py`  a description of the clusters, counted with the fits
"""
