"""Vertical k-means under CKKS: parties hold different columns of the same records.

=====================  =============================================================================
`computing.py`         Figure 1, Alice: steps (1) to (4)
`holder.py`            Figure 1, Bob: key, encryption, step (5)
`owner.py`             further owners of columns (§4.1)
`sharing.py`           the common key of threshold mode (§4.2)
`rounds.py`            the start, noise (step 4) and centres (step 5), alike at all parties
`weighing.py`          ours: noisy centres are weighed with what is known by then
`messages.py`          the exchange; `frame.py`, how long each message may be
`math/engine.py`       what a computing party computes with; `math/workers.py`: in several processes;
                       `math/computer.py`: what the schemes have in common
`math/linear.py`       scheme 'linear', ours: steps (1) to (3) as inner products; `math/grid.py`: its soft assignment
`math/projection.py`   scheme 'projection', two clusters (§3.1); encrypted anew in each round
`math/pairwise.py`     scheme 'pairwise', centres two by two (§3.1); `math/arithmetic.py`, `math/coefficients.py`
`math/circuit.py`      parameters of the pairwise circuit; `math/scales.py`: of the linear scheme
`math/lwe.py`          what leaves of a ciphertext, and how it is opened
`math/hints.py`        what the opened sums tell about errors and key
`math/choose.py`       which scheme, and who plays which part (§3.2, §4); `math/cost.py`
`he/*.py`              CKKS as `tenseal` has it, exact integers on it, and keys held in shares
`settings.py`          what may be chosen; `parameters.py`, what the parties agree on
`budget.py`            how the budget is spent (§3, "Differential Privacy")
`plan.py`              what follows for one run; `proposal.py` makes and checks it
`reference.py`         all rounds on pooled data, without encryption; `parties.py`: all parties in one process
`protocol.py`              the class that ties it to runs, data and reports; `words.py`, `quality.py`
=====================  =============================================================================

Source: Mazzone et al., "Privacy-preserving vertical k-means clustering" ("Vertical HE" in the modules).
"""
