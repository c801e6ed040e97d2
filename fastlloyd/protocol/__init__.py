"""What a protocol is made of: a class that says what is special about it, on a base that derives the rest.

=================  ==============================================================================================
`base.py`          `Protocol`: claim, foresight, plan lines and the common part of the report, for every protocol
`horizontal.py`    `Horizontal`: clients that hold records; the session of server and client, from hello to result
`masked.py`        `Masked`: rounds of noisy masked sums: masks, noise, messages
`sums.py`          `MaskedSums`: a whole protocol of noisy masked sums, of which its author states the sums
`work.py`          what a run of masked sums computes, for `plan`
`vertical.py`      `Vertical`: parties that hold columns of the same records; inputs, claim, plan and result
=================  ==============================================================================================

What authors of protocols import is imported here as well.

Source: docs/adding-a-protocol.md.
"""

from fastlloyd.party.option import option
from fastlloyd.protocol.horizontal import Horizontal
from fastlloyd.protocol.masked import Masked
from fastlloyd.protocol.sums import Floats, MaskedSums, Part, SumsPlan
from fastlloyd.report.outlook import Expected, expect_mean

__all__ = ["Expected", "Floats", "Horizontal", "Masked", "MaskedSums", "Part", "SumsPlan", "expect_mean", "option"]
