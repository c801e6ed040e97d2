"""What leaves a party, in which form, and who can read it: one row for each class of messages of each protocol.

The tables "Who sees what" of the documents have the same rows, and a test compares them word by word. Another test lets
every protocol run and looks at each message that is sent.

Source: docs/security.md and the protocols' own pages, "Who sees what".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastlloyd.dossier.message import Message
from fastlloyd.dossier.own_messages import OWN
from fastlloyd.dossier.shared_messages import SHARED

_LAST = ("Chains", "Counters, Totals")
MESSAGES = (
    *(one for one in SHARED if one.name not in _LAST),
    *OWN,
    *(one for one in SHARED if one.name in _LAST),
)
"""In about the order in which they are sent."""


def messages(protocol: str, facts: Mapping[str, Any]) -> Iterator[Message]:
    """Yield the messages of a run.

    Parameters
    ----------
    protocol : str
    facts : mapping
        The parameters of the report, with `masking`, `roster` (whether there is one) and `align` added.
    """
    return (one for one in MESSAGES if protocol in one.protocols and one.when(facts))
