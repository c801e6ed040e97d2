"""Vertical k-means under CKKS: parties hold different columns of the same records.

====================  =============================================================================
`computing.py`        Figure 1, Alice: steps (1) to (4)
`holder.py`           Figure 1, Bob: key, encryption, step (5)
`owner.py`            further owners of columns (§4.1)
`sharing.py`          the common key of threshold mode (§4.2)
`rounds.py`           the start, noise (step 4) and centres (step 5), the same at all parties; our weighing
`messages.py`         the exchange; `frame.py`, the length of each message
`math/workers.py`     the computing party's computation, in one process or several, and its cost
`math/computer.py`    the interface of engines, and what the schemes share
`math/linear.py`      scheme 'linear', ours: steps (1) to (3) as inner products
`math/grid.py`        the soft assignment of the linear scheme and of projection
`math/renewed.py`     schemes that are encrypted anew in each round, as sums of the linear scheme
`math/projection.py`  scheme 'projection', two clusters (§3.1)
`math/landmarks.py`   scheme 'landmarks', ours: three or more clusters and encrypted columns
`math/pairwise.py`    scheme 'pairwise', centres two by two (§3.1); `math/coefficients.py`
`math/circuit.py`     parameters of the pairwise circuit; `math/scales.py`, of the linear schemes
`math/lwe.py`         the numbers that leave a ciphertext, and how they are opened
`math/hints.py`       what the opened sums reveal about errors and key
`math/choose.py`      the scheme, and each party's role (§3.2, §4); `math/cost.py`, what each computes
`he/*.py`             CKKS with `tenseal`, exact integers on it, and keys held in shares
`settings.py`         the settings; `parameters.py`, what the parties agree on
`budget.py`           how the budget is spent (§3, "Differential Privacy")
`plan.py`             the plan of one run; `proposal.py` makes and checks it
`reference.py`        all rounds on pooled data, without encryption
`protocol.py`         the class for runs, data and reports; who sees what, how much noise there is
====================  =============================================================================

Source: Mazzone et al., "Privacy-preserving vertical k-means clustering" ("Vertical HE" in the modules).
"""
