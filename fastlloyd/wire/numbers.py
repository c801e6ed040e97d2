"""Whose numbers of messages are whose: each message class states its `TYPE`; docs/protocol.md lists them all."""

FIRST_OUTSIDE = 128
"""From here to 255: protocols outside this package."""
