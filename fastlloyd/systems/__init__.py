"""One module per system: what its parties bring, how they are set up over real links, and what they write.

The protocols themselves, free of any I/O, are in `fastlloyd.protocols`.
"""
