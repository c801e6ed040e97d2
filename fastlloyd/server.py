"""`mpirun -n 1 python -m fastlloyd.server .. : -n M python -m fastlloyd.client ..`: rank 0 by name.

The same as rank 0 of `fastlloyd.client`, for hosts that run server and clients from different commands.
"""

from __future__ import annotations

import sys

from fastlloyd.client import main

if __name__ == "__main__":
    sys.exit(main(serve_only=True))
