"""The vertical HE paper's tables and figures.

=============  =====================================================================================
`table3.py`    seconds and megabytes, ten networks; `table3_report.py`; `network.py`, what each adds
`table4.py`    loss and accuracy at epsilon 1
`fig4.py`      seconds against columns
`fig5.py`      loss and accuracy against epsilon
`weighing.py`  what weighing gives
`run.py`       one run in this process; `mpi.py`, under mpirun; `clear.py`, in clear
`utility.py`   beside plain k-means and vertical-dp
`data.py`      data sets; `paper.py`, what the paper publishes
`common.py`    how a case is timed, and how results are written
=============  =====================================================================================
"""
