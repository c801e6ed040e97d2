"""The number of every message, of all protocols: the first byte of its frame.

A number is never given to another message; one that is no longer sent stays taken until the protocol version rises.
Numbers from 128 to 255 belong to protocols outside this package.

Source: docs/protocol.md, "Frames".
"""

# Set-up and closing exchange, alike for all protocols.
HELLO = 8
PLAN_PROPOSAL = 9
COUNTERS = 10
TOTALS = 11
READY = 12
GO = 13
CHAINS = 14
# Secrets among the clients.
SEED_CONTRIBUTION = 16
SEED_CONFIRMATION = 17
PAIR_PUBLIC_KEY = 18
SEAL_KEY = 19
SEAL_KEYS = 20
SEALED_PARTS = 21
SEALED_SEED = 22
ALIKE_TAG = 23
ALIKE_PROOF = 24
# fastlloyd and its baselines.
MASKED_UPDATE = 32
NOISY_MASKED_SUM = 33
# feddp.
MASKED_STATISTIC = 48
PROJECTION_MESSAGE = 49
PROJECTED_CENTERS_MESSAGE = 50
CENTERS_MESSAGE = 51
# kfed.
LOCAL_CENTERS = 64
MERGED_CENTERS = 65
# secfc.
SIZE = 72
LAYER_PUBLIC_KEY = 73
SEALED_TAGS = 74
UNION = 75
DATA_SHARES = 76
SHARED = 77
CODED_VALUES = 78
FINISHED = 80
ROLL = 81
CENTER_SHARES = 82
SIGNS = 83
# Alignment of vertical tables.
COLUMNS = 96
ID_TAG = 97
BLINDED_IDS = 98
OPENED_IDS = 99
COUNT = 100
# vertical-dp and vertical-plain.
SYNOPSIS = 104
FINAL_RESULT = 106
# vertical-he.
KEY_MATERIAL = 120
ENCRYPTED_BLOCK = 121
NOISY_SAMPLES = 122
NOISY_SUMS = 123
KEY_CONTRIBUTION = 124
PARTIAL_OPENINGS = 125
KEY_PIECE = 126
PRESENT = 127

FIRST_OUTSIDE = 128
"""From here to 255: protocols outside this package."""
