"""The files of one benchmark: its page, its table, and a picture where there is one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fastlloyd.report.files import write_atomic


def write_files(
    folder: Path, name: str, parts: Sequence[str], table: str, *, picture: bytes | None = None, about: str = ""
) -> str:
    """Write `name.md`, `name.csv` and, with a picture, `name.png`, and give the Markdown.

    Parameters
    ----------
    folder : Path
    name : str
    parts : sequence of str
        Paragraphs of the page.
    table : str
        CSV.
    picture : bytes, optional
        PNG; it stands at the end of the page.
    about : str
        What the picture shows.

    Raises
    ------
    ConfigError
        The folder cannot be written.
    """
    if picture is not None:
        write_atomic(folder / f"{name}.png", picture)
        parts = [*parts, f"![{about}]({name}.png)"]
    text = "\n\n".join(parts) + "\n"
    write_atomic(folder / f"{name}.csv", table)
    write_atomic(folder / f"{name}.md", text)
    return text
