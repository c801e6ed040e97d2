"""FastLloyd and its baselines: masked sums over the clients, noise from the server, or in shares from the clients.

===================  =================================================================================
`client.py`          Algorithm 1, client p_i
`rounds.py`          lines 3, 6 to 13, 18 to 20: the numbers of one round, and its noise (Eq. 8)
`plus.py`            `fastlloyd-plus`: its updates and post-processing; `plus_state.py`, its state between rounds
`plus_grid.py`       its start from a histogram
`choose_k.py`        its choice of the number of clusters
`settings.py`        the paper's symbols and formulas
`parameters.py`      what the parties agree on
`plan.py`            what follows from it for one run; `round_plan.py`, `plus_plan.py`: radii and noise
`reference.py`       the algorithm on pooled data, without messages; `plus_reference.py`, the updates of `plus.py`
`protocol.py`        the class that ties it to runs, data and reports; `quality.py`, how far off the result may be
===================  =================================================================================

Both sides of lines 15 and 16, GlobalMSA of Figure 1, are in `fastlloyd.lifecycle.masked_sums`.

`glloyd`, `sulloyd` and `lloyd` differ in their plan only.

Source: Diaa, Humphries, Kerschbaum, "FastLloyd".
"""
