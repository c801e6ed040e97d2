"""Draw the pictures of pages in the README and in docs/describe.md.

The first screen of a run's page: `make demo`, then `python scripts/page_picture.py`. The cards of a description: what
docs/data-sources.md does, then `python scripts/page_picture.py cards study/description/report.html`.

Needs a Chromium or Chrome on the path, and Pillow, which comes with the extra `report`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageChops

ROOT = Path(__file__).parents[1]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SIZE = (1000, 1720)  # as far as the photograph and its palette
CARDS = re.compile(r'<div class="cards">.*?</div>\s*</section>', re.DOTALL)


def main() -> None:
    """Take a screenshot of a page (by default that of `make demo`), or of its cards, and reduce it to 128 colours."""
    words = sys.argv[1:]
    cards = words[:1] == ["cards"]
    picture = ROOT / ("docs/cards.png" if cards else "docs/result-page.png")
    page = Path(words[cards] if len(words) > cards else ROOT / "fastlloyd-run/report.html").resolve()
    if not page.is_file():
        raise SystemExit(f"expected the page of a run at {page}, found none; run `make demo` first")
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SystemExit(f"expected one of {', '.join(BROWSERS)} on the path, found none; install Chromium")
    with tempfile.TemporaryDirectory() as folder:
        if cards:
            text = page.read_text("utf-8")
            found = CARDS.search(text)
            if found is None:
                raise SystemExit(f"expected the page of a description at {page}, found one without cards")
            page = Path(folder) / "cards.html"
            page.write_text(
                f"{text.partition('<body>')[0]}<body><main><section>{found[0]}</main></body></html>", "utf-8"
            )
        shot = Path(folder) / "page.png"
        # Chromium refuses to run as root with its sandbox; the page is ours and fetches nothing.
        root = ["--no-sandbox"] if os.geteuid() == 0 else []
        window = f"--window-size={SIZE[0]},{SIZE[1]}"
        command = [browser, "--headless", *root, "--hide-scrollbars", window, f"--screenshot={shot}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        with Image.open(shot) as image:
            drawn = image.convert("RGB")
            if cards:  # without the empty paper around them
                paper = Image.new("RGB", drawn.size, drawn.getpixel((0, SIZE[1] - 1)))
                drawn = drawn.crop(ImageChops.difference(drawn, paper).getbbox())
            drawn.quantize(128).save(picture, optimize=True)
    print(f"{picture}: {picture.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
