"""Vertical DP's tables, figures and claims (Li, Wang, Li, 2023)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from fastlloyd_papers.engine.tables import welch_half_width
from fastlloyd_papers.scoreboard.board import Entry, Line, Part, Results, absent, held, number
from fastlloyd_papers.vertical_dp.data import LETTER, LOAN, MIXTURE, TAXI, TITLES
from fastlloyd_papers.vertical_dp.design import (
    CORRECTED_BASIC,
    CORRECTED_LOOSE,
    CORRECTED_PAIRS,
    IND_LAP,
    LDP_AGG,
    LDP_PAIRS,
    OURS,
    PAPER_BASIC,
)
from fastlloyd_papers.vertical_dp.fig8 import PAPER_BOTH, PAPER_LOCAL, PAPER_WEIGHTS
from fastlloyd_papers.vertical_dp.fig9 import AUTOMATIC
from fastlloyd_papers.vertical_dp.lemma5 import NAME as LEMMA5
from fastlloyd_papers.vertical_dp.table1 import CLUSTERS, PARTIES, ROWS
from fastlloyd_papers.vertical_dp.table1 import NAME as TABLE1
from fastlloyd_papers.vertical_dp.theorem7 import NAME as THEOREM7

_SETS = (MIXTURE, TAXI, LOAN, LETTER)
_FIGURE3, _FIGURE5, _FIGURE6, _FIGURE8, _FIGURE9 = (f"vertical-dp-fig{number_}" for number_ in (3, 5, 6, 8, 9))
_BASELINES = (IND_LAP.name, LDP_PAIRS.name, LDP_AGG.name)
_BEST = {"loss": "2PEst has the lowest loss in most settings", "v_score": "2PEst has the best score in most settings"}
# What is said of letter alone: for one metric in all settings, for the other with two parties.
_LETTER = {
    ("loss", 2): "IND-LAP slightly better at a small epsilon",
    ("loss", 4): "IND-LAP slightly better at a small epsilon",
    ("v_score", 2): "lower than on other data; 2PEst close to the best",
}
# The paper's 2PEst on private sketches: with our local clusters and composition, and with those of the baselines.
_PAPERS = (
    (CORRECTED_PAIRS.name, "2PEst, corrected"),
    (CORRECTED_LOOSE.name, "2PEst, corrected, local clusters and budgets as the baselines'"),
)
# A ratio this close to 1 counts as gone to 1.
_CLOSE = 1e-3
# Beyond this an exact ratio is rounding; and levels below the floor so rare that no draw met one change it by less.
_DECIMALS, _RARE = 9, 1e-4
# The paper's words "largely", "not much" and "about the same" have no number: these are ours.
_LARGELY, _ALIKE = 0.9, 1.1
# Paper: M, and the default.
_ROWS = 4096

Runs = dict[tuple[str, ...], list[float]]


def parts(results: Results) -> list[Part]:
    """Return all parts, in the paper's order."""
    return [
        Part("Lemma 5: the floor of a level", LEMMA5, _lemma5(results)),
        Part("Theorem 7: the loss beside its bound", THEOREM7, _theorem7(results)),
        Part("Figure 3: loss of the final centres", _FIGURE3, [*_ranks(results, "loss"), _basic(results, "loss")]),
        Part("Figure 4: V-scores", _FIGURE3, _ranks(results, "v_score")),
        Part("Figure 5: uneven numbers of columns", _FIGURE5, _uneven(results)),
        Part("Figure 6: number of parties", _FIGURE6, _parties(results)),
        Part("Figure 7: error of the grid weights", _FIGURE3, _weights(results)),
        Part("Figure 8: privacy of one part only", _FIGURE8, _components(results)),
        Part("Table 1: bytes and time", TABLE1, _table1(results)),
        Part("Figure 9: the number of local clusters", _FIGURE9, _local(results)),
    ]


def _lemma5(results: Results) -> list[Line]:
    """Follow the distance of each exact ratio from 1, and see whether the measured one agrees with it."""
    lines, entries = [], results.entries(LEMMA5)
    for quantity, symbol in (("mean", "E"), ("variance", "Var")):
        what, claim = f"{symbol}[alpha] / {symbol}[alpha-hat] as the set grows", "goes to 1"
        cases: dict[tuple[str, str], list[float]] = {}
        for one in sorted(entries, key=lambda one: int(one["users"])):
            off = round(abs(float(one[f"exact_{quantity}_ratio"]) - 1.0), _DECIMALS)
            cases.setdefault((one["gamma"], one["phantoms"]), []).append(off)
        if not cases:
            lines.append(absent(LEMMA5, what, claim))
            continue
        falls = all(case == sorted(case, reverse=True) and case[-1] < _CLOSE for case in cases.values())
        told = f"within {number(max(case[0] for case in cases.values()))} when empty, "
        told += (
            f"{number(max(case[-1] for case in cases.values()))} at {int(max(entries, key=_users)['users']):,} users"
        )
        lines.append(Line(what, claim, told, "holds" if falls else "does not hold"))
        agree = [
            abs(float(one[f"{quantity}_ratio"]) - float(one[f"exact_{quantity}_ratio"]))
            <= 2.0 * float(one[f"{quantity}_half_width"]) + _RARE
            for one in entries
        ]
        lines.append(held(LEMMA5, f"{what}: measured beside exact, twice the interval apart at most", "-", agree))
    return lines


def _users(one: Entry) -> int:
    return int(one["users"])


def _theorem7(results: Results) -> list[Line]:
    lines, claim = [], "at most beta OPT + lambda with probability 1 - omega"
    for name in (PAPER_BASIC.name, CORRECTED_BASIC.name):
        for parties in PARTIES:
            own = results.pick(THEOREM7, method=name, parties=parties)
            line = held(
                THEOREM7,
                f"S = {parties}, {name}, the term of the weights with the constant 1",
                claim,
                [float(one["loss"]) <= float(one["bound"]) + float(one["weights_term"]) for one in own],
            )
            if own:
                without = sum(float(one["loss"]) <= float(one["bound"]) for one in own)
                line = replace(line, ours=f"{line.ours}; without that term in {without}")
            lines.append(line)
    what, own = "loss over OPT, all runs", list(results.entries(THEOREM7))
    if not own:
        return [*lines, absent(THEOREM7, what, "beta near 10")]
    found = [float(one["loss"]) / float(one["optimum"]) for one in own]
    return [*lines, Line(what, "beta near 10", f"{min(found):.2f} to {max(found):.2f}", "not judged")]


def _runs(results: Results, bench: str, metric: str, **which: object) -> Runs:
    """Return a metric of all runs by method and epsilon."""
    runs: Runs = {}
    for one in results.pick(bench, **which):
        if one[metric]:
            runs.setdefault((one["method"], one["epsilon"]), []).append(float(one[metric]))
    return runs


def _not_above(ours: Sequence[float], theirs: Sequence[float]) -> tuple[bool, bool]:
    """Say whether one mean is not above another, and whether it is not by more than the 95 % interval (Welch)."""
    difference = statistics.fmean(ours) - statistics.fmean(theirs)
    first, second = ((statistics.stdev(runs) if len(runs) > 1 else 0.0, len(runs)) for runs in (ours, theirs))
    return difference <= 0.0, difference <= welch_half_width(first, second)


def _rank(runs: Runs, method: str, *, most: bool = False) -> tuple[list[bool], list[bool]]:
    """Say for each epsilon whether a method is not behind any baseline, and within the intervals."""
    sign, strict, within = -1.0 if most else 1.0, [], []
    for (who, epsilon), own in runs.items():
        theirs = [runs[other, epsilon] for other in _BASELINES if (other, epsilon) in runs]
        if who == method and theirs:
            found = [_not_above([sign * v for v in own], [sign * v for v in other]) for other in theirs]
            strict.append(all(first for first, _ in found))
            within.append(all(second for _, second in found))
    return strict, within


def _ranks(results: Results, metric: str) -> list[Line]:
    lines = []
    for parties in PARTIES:
        for data in _SETS:
            alone = _LETTER.get((metric, parties)) if data == LETTER else None
            for method, name in (*_PAPERS, (OURS.name, "ours")):
                runs = _runs(results, _FIGURE3, metric, data=data, parties=parties)
                cases = _rank(runs, method, most=metric == "v_score")
                what = f"{TITLES[data]}, S = {parties}, {name} not behind the baselines"
                line = held(_FIGURE3, what, alone or _BEST[metric], *cases, data=data)
                # Where the paper does not claim to be ahead, the count alone is told.
                lines.append(replace(line, verdict="not judged") if alone and line.ours else line)
    return lines


def _basic(results: Results, metric: str) -> Line:
    """Count where BasicEst with four parties is worse than 2PEst by so much that it counts as largely."""
    factors = []
    for data in (MIXTURE, LETTER):
        runs = _runs(results, _FIGURE3, metric, data=data, parties=PARTIES[-1])
        factors += [
            statistics.fmean(runs[CORRECTED_PAIRS.name, epsilon]) / statistics.fmean(own)
            for (who, epsilon), own in runs.items()
            if who == CORRECTED_BASIC.name
        ]
    what = f"mixed Gaussian and letter, S = {PARTIES[-1]}, both corrected: 2PEst at most {_LARGELY:.0%} of BasicEst"
    line = held(_FIGURE3, what, "2PEst largely better", [factor <= _LARGELY for factor in factors])
    if not factors:
        return line
    return replace(line, ours=f"{line.ours}; {min(factors):.0%} to {max(factors):.0%}")


def _uneven(results: Results) -> list[Line]:
    lines = []
    for data, splits in ((MIXTURE, ("3+5", "2+6")), (LOAN, ("6+10", "4+12"))):
        found = {split: _runs(results, _FIGURE5, "loss", data=data, columns=split) for split in splits}
        for split, runs in found.items():
            for method, name in _PAPERS:
                what = f"{TITLES[data]}, columns {split}, {name}"
                lines.append(held(_FIGURE5, what, "below IND-LAP and LDP-AGG", *_rank(runs, method), data=data))
        first, second = (
            {epsilon: statistics.fmean(own) for (who, epsilon), own in runs.items() if who == CORRECTED_PAIRS.name}
            for runs in found.values()
        )
        apart = [max(loss / second[epsilon], second[epsilon] / loss) for epsilon, loss in first.items()]
        what = f"{TITLES[data]}, 2PEst, corrected: losses of both splits at most {_ALIKE:g} times apart"
        line = held(_FIGURE5, what, "do not change much", [factor <= _ALIKE for factor in apart], data=data)
        lines.append(replace(line, ours=f"{line.ours}; at most {max(apart):.2f} times") if apart else line)
    return lines


def _parties(results: Results) -> list[Line]:
    lines = []
    for data in (LOAN, LETTER):
        counts = sorted({int(one["parties"]) for one in results.pick(_FIGURE6, data=data)})
        runs = {count: _runs(results, _FIGURE6, "loss", data=data, parties=count) for count in counts}
        grows = [
            _not_above(own, runs[high][who, epsilon])
            for low, high in pairwise(counts)
            for (who, epsilon), own in runs[low].items()
            if who == CORRECTED_PAIRS.name and (who, epsilon) in runs[high]
        ]
        title = f"{TITLES[data]}{'' if data == LOAN else ' (ours to compare with)'}"
        shown = ", ".join(map(str, counts)) or "2 to 16"
        what = f"{title}, S = {shown}, 2PEst, corrected"
        lines.append(held(_FIGURE6, what, "the loss grows with S", *_both(grows), data=data))
        cases = [
            case for of_count in runs.values() for case in zip(*_rank(of_count, CORRECTED_PAIRS.name), strict=True)
        ]
        claim = "always the lowest loss of the three"
        lines.append(held(_FIGURE6, f"{title}, 2PEst, corrected", claim, *_both(cases), data=data))
    return lines


def _both(cases: Sequence[tuple[bool, bool]]) -> tuple[list[bool], list[bool]]:
    return [strict for strict, _ in cases], [within for _, within in cases]


def _weights(results: Results) -> list[Line]:
    lines, falls = [], []
    for parties in PARTIES:
        for data in _SETS:
            runs = _runs(results, _FIGURE3, "weight_error", data=data, parties=parties)
            for method, name in _PAPERS:
                what = f"{TITLES[data]}, S = {parties}, {name}"
                cases = _rank(runs, method)
                lines.append(held(_FIGURE3, what, "smallest error in most settings", *cases, data=data))
            errors = {
                float(epsilon): statistics.fmean(own) for (who, epsilon), own in runs.items() if who == IND_LAP.name
            }
            if errors:
                falls.append(errors[max(errors)] / errors[min(errors)] > 0.5)
    lines.append(_basic(results, "weight_error"))
    what = "IND-LAP, more than half of the error at the least epsilon is left at the largest"
    lines.append(held(_FIGURE3, what, "the error hardly falls", falls))
    return lines


def _components(results: Results) -> list[Line]:
    lines = []
    claims = {2: "private local clusters cost more than private weights", 4: "either part costs about the same"}
    for parties in PARTIES:
        for data in _SETS:
            runs = _runs(results, _FIGURE8, "loss", data=data, parties=parties)
            what = (
                f"{TITLES[data]}, S = {parties}, mean of all budgets: only weights private, only local clusters, both"
            )
            found = [
                statistics.fmean(value for (who, _), own in runs.items() if who == method.name for value in own)
                for method in (PAPER_WEIGHTS, PAPER_LOCAL, PAPER_BOTH)
                if runs
            ]
            if not found:
                lines.append(absent(_FIGURE8, what, claims[parties], data))
                continue
            weights, local, _ = found
            holds = local > weights if parties == 2 else max(local / weights, weights / local) <= _ALIKE
            verdict = "holds" if holds else "does not hold"
            lines.append(Line(what, claims[parties], ", ".join(map(number, found)), verdict))
    return lines


def _table1(results: Results) -> list[Line]:
    lines = []
    for clusters in CLUSTERS:
        size = next(row.published[clusters][0] for row in ROWS if clusters in row.published and row.rows == _ROWS)
        for parties in PARTIES:
            # What a run sends unless it is told otherwise: with four parties, a sketch for each pair that one is in.
            sent = _arm(results, f"vertical-dp (M = {_ROWS})", clusters, parties)
            lines.append(_bytes(f"k' = {clusters}, vertical-dp, the default (M = {_ROWS}), S = {parties}", size, sent))
        for row in ROWS:
            if clusters not in row.published:
                continue
            told, *seconds = row.published[clusters]
            label = row.method.name if row.rows is None else f"{row.method.name} (M = {row.rows})"
            what = f"k' = {clusters}, {label}"
            two = _arm(results, label, clusters, PARTIES[0])
            lines.append(_bytes(what, told, two))
            for parties, published in zip(PARTIES, seconds, strict=True):
                lines.append(
                    _time(results, f"{what}: time, S = {parties}", published, _arm(results, label, clusters, parties))
                )
    return lines


def _arm(results: Results, label: str, clusters: int, parties: int) -> list[Entry]:
    return results.pick(TABLE1, method=label, local_clusters=clusters, parties=parties)


def _bytes(what: str, published: str, entries: list[Entry]) -> Line:
    words = f"{what}: bytes of a party"
    if not entries:
        return absent(TABLE1, words, published)
    ours = float(entries[0]["bytes"]) / 1000
    return Line(words, published, f"{number(ours)} kB", f"{number(ours / float(published.split(maxsplit=1)[0]))} times")


def _time(results: Results, what: str, published: float, entries: list[Entry]) -> Line:
    if not entries:
        return absent(TABLE1, what, f"{published:g} s")
    ours = statistics.median(float(one["seconds"]) for one in entries)
    verdict = results.distrust(TABLE1, entries) or f"{number(ours / published)} times"
    return Line(what, f"{published:g} s", f"{number(ours)} s", verdict)


def _local(results: Results) -> list[Line]:
    """Follow the best number of local clusters of the paper's estimator, and see how its rule compares."""
    lines = []
    for parties in PARTIES:
        for data in _SETS:
            runs = _runs(results, _FIGURE9, "loss", data=data, parties=parties)
            best: dict[float, int] = {}
            over: list[float] = []
            for epsilon in sorted({epsilon for _, epsilon in runs if epsilon}, key=float):
                tried = {
                    int(who.rpartition("= ")[2]): statistics.fmean(own)
                    for (who, at), own in runs.items()
                    if at == epsilon and who.startswith(f"{AUTOMATIC.name}, k' = ")
                }
                best[float(epsilon)] = min(tried, key=tried.__getitem__)
                over.append(statistics.fmean(runs[AUTOMATIC.name, epsilon]) / min(tried.values()))
            title = f"{TITLES[data]}, S = {parties}, 2PEst, corrected"
            what, claim = f"{title}: best k' by epsilon", "larger k' for a larger epsilon"
            rule, close = f"{title}: the rule's loss at most {_ALIKE:g} times the least tried", "close to the best"
            if not best:
                lines += [absent(_FIGURE9, what, claim, data), absent(_FIGURE9, rule, close, data)]
                continue
            chosen = list(best.values())
            verdict = "holds" if chosen == sorted(chosen) and chosen[0] < chosen[-1] else "does not hold"
            lines.append(
                Line(what, claim, ", ".join(f"{count} at {epsilon:g}" for epsilon, count in best.items()), verdict)
            )
            line = held(_FIGURE9, rule, close, [factor <= _ALIKE for factor in over])
            lines.append(replace(line, ours=f"{line.ours}; at most {max(over):.2f} times"))
    return lines
