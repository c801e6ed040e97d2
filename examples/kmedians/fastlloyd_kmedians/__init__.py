"""Private k-medians: in each round every record votes, per feature, on which side of its nearest centre it lies.

`protocol.py` is all of it.
"""

from fastlloyd.protocols.registry import Row

ROW = Row("kmedians", "fastlloyd_kmedians", "horizontal", "private k-medians by noisy votes (example)", sizes=True)
