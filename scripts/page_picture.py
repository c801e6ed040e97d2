"""Draw the first screen of a run's page for the README: `make demo`, then `python scripts/page_picture.py`.

Needs a Chromium or Chrome on the path, and Pillow, which comes with the extra `report`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs/result-page.png"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SIZE = (1000, 1380)  # as far as the photograph and its palette


def main() -> None:
    """Take a screenshot of a page (the first argument, or that of `make demo`) and reduce it to 128 colours."""
    page = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "fastlloyd-run/report.html").resolve()
    if not page.is_file():
        raise SystemExit(f"expected the page of a run at {page}, found none; run `make demo` first")
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SystemExit(f"expected one of {', '.join(BROWSERS)} on the path, found none; install Chromium")
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder) / "page.png"
        # Chromium refuses to run as root with its sandbox; the page is ours and fetches nothing.
        root = ["--no-sandbox"] if os.geteuid() == 0 else []
        window = f"--window-size={SIZE[0]},{SIZE[1]}"
        command = [browser, "--headless", *root, "--hide-scrollbars", window, f"--screenshot={shot}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        with Image.open(shot) as image:
            image.convert("RGB").quantize(128).save(PICTURE, optimize=True)
    print(f"{PICTURE}: {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
