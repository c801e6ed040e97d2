"""FastLloyd and its baselines: masked sums over the clients, noise from the server, or in shares from the clients.

===================  =================================================================================
`client.py`          Algorithm 1, client p_i
`rounds.py`          lines 3, 6 to 13, 18 to 20: the numbers of one round, its noise (Eq. 8), the choice of k
`plus.py`            `fastlloyd-plus`: its updates and post-processing
`plus_grid.py`       its state between rounds, and its start from a histogram
`settings.py`        what the parties agree on, with the paper's symbols and formulas
`plan.py`            what follows from it for one run; `plus_plan.py`, for `fastlloyd-plus`
`reference.py`       the algorithm on pooled data, without messages; `plus_reference.py`, the updates of `plus.py`
`protocol.py`        the class that ties it to runs, data and reports; `quality.py`, how far off the result may be;
                     `work.py`, what a run computes
===================  =================================================================================

Both sides of lines 15 and 16, GlobalMSA of Figure 1, are in `fastlloyd.lifecycle.masked_sums`.

`glloyd`, `sulloyd` and `lloyd` differ in their plan only.

Source: Diaa, Humphries, Kerschbaum, "FastLloyd".
"""
