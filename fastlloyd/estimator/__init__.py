"""Federated k-means as a scikit-learn estimator, all parties in memory.

`estimator.py`  the class; `whole.py`, a fit takes effect as a whole; `fitting.py`, one fit
`parameter.py`  parameters and their errors; `forms.py`, the forms of bounds
`inputs.py`     records and columns of each owner, and what the parties are given
`account.py`    what fits spend, and budgets that copies share
`caution.py`    what a fit warns its caller of
"""
