"""Puts the measured cells of Vertical HE's Table 3 into Markdown and CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastlloyd_papers.engine.quiet import COLUMNS, UNUSABLE, contended, entries
from fastlloyd_papers.vertical_he.common import Sheet, compute_seconds, tables, traffic_of
from fastlloyd_papers.vertical_he.network import NETWORKS, plain_seconds, tcp_seconds
from fastlloyd_papers.vertical_he.paper import CLUSTERS, MACHINE, published, published_megabytes

ROUNDS = 10

HOW_COMPUTED = (
    "Times over networks are computed: seconds on this machine + bytes / rate + delay for each message that waits for "
    "another (two in each round; in the set-up all but the encrypted blocks, which follow one another; four for the "
    'handshakes of TCP and TLS). "with TCP": the rate is at most what TCP keeps at the network\'s loss, '
    "sqrt(3 / (2 p)) segments of 1,460 bytes in a round trip (Mathis et al., 1997), and each stream starts with ten "
    "segments and doubles them in each round trip. Jitter is left out."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One cell: what was run, how often, and the median run.

    Attributes
    ----------
    network : str
        Empty: over the loopback interface.
    columns : str
        Of both parties, '1+1' or '2+2'.
    rounds : int
        That were run.
    values : sequence
        All runs.
    """

    network: str
    columns: str
    n: int
    k: int
    rounds: int
    values: Sequence[Mapping[str, Any]]
    value: Mapping[str, Any]

    @property
    def total(self) -> float:
        """Seconds of set-up and ten rounds on this machine."""
        return compute_seconds(self.value, ROUNDS)

    @property
    def megabytes(self) -> float:
        """All bytes of set-up and ten rounds."""
        return traffic_of(self.value, ROUNDS).total_bytes / 1e6

    def on(self, network: str) -> tuple[float, float]:
        """Return the computed seconds of ten rounds over a network: by rate and delay, and with TCP."""
        traffic, shape = traffic_of(self.value, ROUNDS), NETWORKS[network]
        return self.total + plain_seconds(shape, traffic), self.total + tcp_seconds(shape, traffic)


def write_report(sheet: Sheet, found: Sequence[Measured], *, how: str, notes: Sequence[str]) -> str:
    """Write Markdown and CSV, and give the Markdown.

    Parameters
    ----------
    sheet : Sheet
    found : sequence of Measured
    how : str
        How the runs were timed.
    notes : sequence of str
        What was left out.
    """
    here = [one for one in found if not one.network]
    one_each = [one for one in here if one.columns == "1+1"]
    shaped = [one for one in found if one.network]
    measured, measured_csv = measured_table(here)
    parts = ["## Measured here", how, measured, "## Ten networks, one column each, computed", HOW_COMPUTED]
    for n in sorted({one.n for one in one_each}):
        parts += [f"n = {n:,}, seconds of ten iterations:", network_table([one for one in one_each if one.n == n])]
    csvs = {"": measured_csv, "-networks": networks_csv(one_each)}
    if shaped:
        table, csvs["-shaped"] = shaped_table(shaped, one_each)
        parts += ["## Shaped links", _shaped_words(shaped), table]
    closing = [
        f"The paper's figures are from {MACHINE}, its parties on one machine as well.",
        "Where a cell was run several times the median run stands here. Noise: epsilon = 1, delta = 1 / n. Bytes are "
        "all that is sent, headers and TLS records included; a largest process is a rank or one of its workers.",
        "Set-up: from the start of the ranks, with alignment, keys, encryption. A round: the mean but for the first. "
        "Pairwise rows were run for fewer rounds; ten are set-up + ten times a round.",
    ]
    return sheet.write(parts, [*notes, *closing], csvs)


def _shaped_words(shaped: Sequence[Measured]) -> str:
    backends, congestion = (", ".join(sorted({one.value[key] for one in shaped})) for key in ("backend", "congestion"))
    return (
        f"Two network namespaces; packets are delayed, lost and paced by: {backends}. TCP's congestion control here: "
        f"{congestion} (Mathis' formula is for reno and, nearly, cubic; bbr hardly slows down at such losses)."
    )


def measured_table(found: Sequence[Measured]) -> tuple[str, str]:
    """Write what was measured over the loopback interface."""
    header = (
        "columns", "n", "k", "scheme", "rounds run", "runs", "set-up, s", "a round, s", "ten rounds and set-up, s",
        "paper, s", "times faster", "mpirun's wall, s", "processor, s", "MB", "paper, MB", "largest process, MiB",
        *COLUMNS,
    )  # fmt: skip
    rows: list[list[object]] = []
    for one in found:
        value = one.value
        paper = published("LAN10000", one.n, one.k) if one.columns == "1+1" else None
        rows.append([
            one.columns, one.n, one.k, value["scheme"], one.rounds, len(one.values), value["setup_seconds"],
            value["round_seconds"], one.total, paper,
            None if paper is None else UNUSABLE if contended(one.values) else paper / one.total,
            value["wall_seconds"], value["cpu_seconds"], one.megabytes,
            published_megabytes(one.n, one.k) if one.columns == "1+1" else None, value["peak_mib"],
            *entries(one.values),
        ])  # fmt: skip
    return tables(header, rows)


def network_table(found: Sequence[Measured]) -> str:
    """Write one size's computed times beside the published ones, networks down and clusters across."""
    by_k = {one.k: one for one in found}
    clusters = [k for k in CLUSTERS if k in by_k]
    header = ["network"]
    for k in clusters:
        header += [f"k = {k}", "with TCP", "paper"]
    rows: list[list[object]] = []
    for network in NETWORKS:
        row: list[object] = [network]
        for k in clusters:
            row += [*by_k[k].on(network), published(network, by_k[k].n, k)]
        rows.append(row)
    return tables(header, rows)[0]


def networks_csv(found: Sequence[Measured]) -> str:
    """Write all computed times as CSV."""
    header = (
        "network", "n", "k", "computed_s", "computed_with_tcp_s", "paper_s", "megabytes", "paper_megabytes", *COLUMNS,
    )  # fmt: skip
    rows: list[list[object]] = [
        [network, one.n, one.k, *one.on(network), published(network, one.n, one.k), one.megabytes,
         published_megabytes(one.n, one.k), *entries(one.values)]
        for network in NETWORKS
        for one in found
    ]  # fmt: skip
    return tables(header, rows)[1]


def shaped_table(shaped: Sequence[Measured], here: Sequence[Measured]) -> tuple[str, str]:
    """Write what was measured over shaped links beside what is computed for them."""
    header = (
        "network", "n", "k", "shaped: set-up, s", "ten rounds, s", "together, s", "computed, s", "with TCP, s",
        "paper, s", "MB on the wire", *COLUMNS,
    )  # fmt: skip
    rows: list[list[object]] = []
    for one in shaped:
        same = [other for other in here if (other.n, other.k) == (one.n, one.k)]
        computed = same[0].on(one.network) if same else (None, None)
        rows.append([
            one.network, one.n, one.k, one.value["setup_seconds"], ROUNDS * one.value["round_seconds"], one.total,
            *computed, published(one.network, one.n, one.k), one.value["wire_bytes"] / 1e6,
            *entries(one.values),
        ])  # fmt: skip
    return tables(header, rows)
