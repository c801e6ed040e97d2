"""The page of `serve --status`: HTML without scripts, which loads nothing and comes anew every few seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

from fastlloyd.errors import printable
from fastlloyd.report.unit import format_bytes, format_seconds

AGAIN_S: Final = 5
_STAGES = {
    "starting": "waiting for all parties to start",
    "setup": "set-up: links, plan, seed",
    "rounds": "in the rounds",
    "done": "done",
    "failed": "failed",
}
_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { margin: 2rem auto; max-width: 46rem; padding: 0 1rem; }
h1 { font-size: 1.3rem; margin-bottom: 0; }
p { margin: .3rem 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; overflow-wrap: anywhere; table-layout: fixed; width: 100%; }
caption { font-weight: 600; text-align: left; }
th, td { border-bottom: 1px solid #8886; padding: .3rem .8rem .3rem 0; text-align: left; vertical-align: top; }
th { font-weight: 500; width: 40%; }
progress { width: 100%; }
"""


def render_page(facts: Mapping[str, Any]) -> str:
    """Write the page.

    Parameters
    ----------
    facts : mapping
        As `watch.status.facts` returns them; names come from people and are escaped.
    """
    stage = _STAGES[facts["stage"]]
    rounds, clients = facts["rounds"], facts["clients"]
    rows = "\n".join(f"<tr><th scope=row>{name}</th><td>{_text(value)}</td></tr>" for name, value in _rows(facts))
    people = "\n".join(
        f"<tr><th scope=row>{_text(_named(one))}</th><td>{'joined' if one['joined'] else 'not yet'}</td></tr>"
        for one in clients
    )
    bar = ""
    if rounds["planned"]:
        bar = f'<progress aria-label="rounds closed" max="{rounds["planned"]}" value="{rounds["closed"]}"></progress>'
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="refresh" content="{AGAIN_S}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>fastlloyd: {_text(stage)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{_text(stage)}</h1>
<p>{_text(facts["waiting"])}</p>
{bar}
<table>
<caption>The run</caption>
<tbody>
{rows}
</tbody>
</table>
<table>
<caption>Clients: {sum(one["joined"] for one in clients)} of {len(clients)} have joined</caption>
<tbody>
{people}
</tbody>
</table>
<p>fastlloyd {_text(facts["version"])}. Public facts only; the same as JSON: <a href="/status.json">status.json</a>.</p>
</main>
</body>
</html>
"""


def _rows(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what the table says."""
    rounds, counts = facts["rounds"], facts["bytes"]
    yield "protocol", f"{facts['protocol']}, epsilon {facts['epsilon']:g}"
    yield "run", facts["run"] or "not begun"
    yield "running for", format_seconds(facts["seconds"])
    yield "set-up", format_seconds(facts["setup_seconds"]) if facts["setup_seconds"] else "not done"
    if rounds["planned"]:
        yield "rounds closed", f"{rounds['closed']} of {rounds['planned']}"
        yield "last round", f"{format_seconds(rounds['last_seconds'])}, {rounds['last_included']} clients"
    yield (
        "bytes on the server's links",
        f"{format_bytes(counts['sent'])} sent, {format_bytes(counts['received'])} received",
    )
    if facts["exit_code"] is not None:
        yield "exit code", str(facts["exit_code"])


def _named(client: Mapping[str, Any]) -> str:
    return f"client {client['rank']}" + (f" ({client['name']})" if client["name"] else "")


def _text(value: str) -> str:
    return escape(printable(value))
