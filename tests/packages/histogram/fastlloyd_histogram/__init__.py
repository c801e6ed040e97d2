"""A private histogram of one column: a protocol of its own package, as an example of how to add one.

`plan.py` says what all parties agree on and what is released, `messages.py` what they send, `client.py` and `server.py`
are the two roles, `reference.py` is the same on pooled records without messages, and `face.py` ties it all to runs,
data and reports. Read them in this order.
"""

from fastlloyd.protocols.registry import Row

ROW = Row(
    "histogram",
    "fastlloyd_histogram",
    "horizontal",
    "a private histogram of one column (example)",
    resumes=False,
    results=1,
)
