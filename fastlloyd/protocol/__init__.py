"""What a protocol is made of: a class that says what is special about it, on a base that derives the rest.

=================  ==============================================================================================
`base.py`          `Protocol`: claim, foresight, plan lines and the common part of the report, for every protocol
`horizontal.py`    `Horizontal`: clients that hold records; the session of server and client, from hello to result
`masked.py`        `Masked`: rounds of noisy masked sums: masks, noise, messages
`vertical.py`      `Vertical`: parties that hold columns of the same records; inputs, claim, plan and result
=================  ==============================================================================================

Source: docs/adding-a-protocol.md.
"""
