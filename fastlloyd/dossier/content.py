"""The dossier of one run, before it happens, from public facts only.

Each section says what documents and code prove and no more; what depends on the protocol comes from its class:
where data go and in which messages, who sees what, and the claim and the releases that it foresees.

Source: docs/data-protection.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from fastlloyd.crypto.link.identity import group_hex
from fastlloyd.dossier.blocks import Block, Dossier, Items, Listing, Section, Text
from fastlloyd.dossier.planned_run import PlannedRun
from fastlloyd.dossier.standing import (
    ASSESSMENT,
    ASSESSMENT_NOTE,
    DELETING,
    ENDS,
    ENDS_NOTE,
    FILES_NOTE,
    KEYS,
    factor_words,
    files,
    not_promised,
    open_points,
    promise_words,
)
from fastlloyd.dossier.study import spent_together
from fastlloyd.errors import printable
from fastlloyd.privacy.accountant import spent
from fastlloyd.privacy.release import SKETCH_ROWS, Release
from fastlloyd.report.citation import study_words
from fastlloyd.report.claim import Claim
from fastlloyd.report.unit import format_count, format_epsilon
from fastlloyd.run.config import study
from fastlloyd.run.promise import short_unit, unit_sentence
from fastlloyd.run.vertical import VerticalInputs
from fastlloyd.version import __version__
from fastlloyd.wire.header import SERVER
from fastlloyd.wire.values import digest, show_value

_MOST_COMMENTS, _MOST_COMMENT = 20, 300
_TO_FILL_IN = "To be filled in: the key purpose of the run file puts it here, or fastlloyd dossier --purpose TEXT."


def make_dossier(run: PlannedRun) -> Dossier:
    """Return the document."""
    links = "This run has no roster: keys are made at start and nobody checks them."
    if run.roster is not None:
        links = f"This run pins the certificates of its {len(run.roster.entries)} parties."
    sections = (
        Section("Purpose", [Text(run.purpose or _TO_FILL_IN)]),
        Section("Parties", list(_parties(run))),
        Section("What is computed", list(_computation(run))),
        Section("What data stay where", list(_staying(run))),
        Section("What leaves, and in which form", list(_leaving(run))),
        Section("Who could learn what", list(_learning(run))),
        Section("The promise", list(_promise(run))),
        *([Section("Runs on the same records", list(_study(run)))] if run.earlier or run.follows else []),
        Section("What is not promised", [Items(list(not_promised(run)))]),
        Section(
            "State, ledger and how long files stay", [files(labels=not run.vertical), FILES_NOTE, Text(_budget(run))]
        ),
        Section("How to delete", [DELETING]),
        Section("Keys", [Text(links), KEYS]),
        Section("What happens on failure", [ENDS, ENDS_NOTE]),
        Section("Open points", [Items(list(open_points(run)))]),
        Section("Questions of a data protection impact assessment", [ASSESSMENT_NOTE, ASSESSMENT]),
        Section("Public values of this run", list(_values(run))),
    )
    named = "" if run.config.title is None else f"{run.config.title}, "
    return Dossier(
        title=f"Data protection dossier: {named}a run of {run.config.protocol}, before it happens",
        private=run.unit is not None,
        summary=tuple(summarise(run)),
        sections=sections,
        made_by=f"Made by fastlloyd {__version__} from the run file and public facts alone; no records were opened. "
        f"What proves each claim: docs/claims.md of this version; explanations: docs/data-protection.md, "
        f"docs/security.md and docs/privacy.md.",
    )


def summarise(run: PlannedRun) -> Iterator[str]:
    """Yield a summary of the run for a site, in a few lines."""
    if about := study_words(study(run.config)):
        yield f"Study: {about}."
    clusters = f"{'at most ' if run.config.choose_k else ''}{format_count(run.inputs.public.k, 'cluster')}"
    if run.config.row.finds_bounds:
        clusters = "bounds of the columns"
    whose = "whose columns the parties hold" if run.vertical else f"of {format_count(run.clients, 'client')}"
    yield (
        f"{run.config.protocol} ({run.summary}): {clusters} of at most {format_count(run.n_total, 'record')} {whose}."
    )
    flow = run.flow
    if flow is not None:
        yield f"How anything of a record leaves its owner: {flow.records}."
        yield f"Who has the result: {flow.result}."
    yield _short_promise(run)
    if run.expected is not None:
        yield f"What to expect of the result: {run.expected}."
    if run.unit is None and run.sights is not None:
        bare = [one for one in run.sights.alone if one.open]
        yield from (f"Alone, with no protection: {one.who}: {one.sees}." for one in bare)
    yield from (f"Together, with no protection left: {one.who}: {one.sees}." for one in run.unprotected)
    points = list(open_points(run))
    yield (
        f"{format_count(len(points), 'open point')} to settle before the run; the dossier (fastlloyd dossier) lists "
        "them."
    )


def _short_promise(run: PlannedRun) -> str:
    """Return the promise in one sentence."""
    if run.unit is None:
        reason = "" if run.foreseen is None else f": {run.foreseen.claim.not_private_reason or 'no noise is added'}"
        return f"No differential privacy is promised{reason}."
    epsilon, delta = run.config.epsilon, run.delta
    plus = "" if not delta else f", plus {delta:.3g}"
    against = "" if run.foreseen is None else f" Against {run.foreseen.claim.against}."
    stated = f"epsilon {format_epsilon(epsilon)}" + ("" if not delta else f", delta {delta:.3g}")
    return (
        f"Promise: {stated}. The chance of any outcome if {short_unit(run.unit)} counts is at most "
        f"{factor_words(epsilon)} times its chance if it does not{plus}, under the conditions of the dossier.{against}"
        + ("" if run.foreseen is not None else f" Delta and noise cannot be said: {run.why_unforeseen}.")
    )


def _parties(run: PlannedRun) -> Iterator[Block]:
    """List the parties."""
    if run.roster is None:
        yield Text(
            f"Not fixed: no roster was given. The run has a server and {format_count(run.clients, 'client')}. Without "
            "a roster nobody proves who they are; that is a demonstration, and not for personal data."
        )
        return
    rows = [(entry.name, _role(run, entry.rank), str(entry.rank), entry.fingerprint) for entry in run.roster.entries]
    yield Listing(("name", "role", "rank", "fingerprint of the certificate (SHA-256)"), rows)
    yield Text(
        f"Digest of the roster: {group_hex(run.roster.digest())}. Names prove nothing until the fingerprints were "
        "compared by telephone or in person. Legal names, addresses, contacts and whether a party is controller or "
        "processor are not known to the program: add them."
    )


def _role(run: PlannedRun, rank: int) -> str:
    owners = run.inputs.owners if isinstance(run.inputs, VerticalInputs) else ()
    holds = any(party.rank == rank for party in owners) if owners else rank != SERVER.rank
    what = "columns" if run.vertical else "records"
    role = f"{'server' if rank == SERVER.rank else 'client'}, {f'holds {what}' if holds else f'holds no {what}'}"
    # Which party of vertical-he computes follows from the plan, and so from numbers that are not all known yet.
    holding = "to open the sums" if run.facts.get("mode") == "threshold" else "to hold the key"
    part = {run.facts.get("holder"): holding, run.facts.get("computing"): "to compute"}.get(rank)
    return role if part is None else f"{role}, expected {part}"


def _computation(run: PlannedRun) -> Iterator[Block]:
    """Describe the computation."""
    public = run.inputs.public
    rows = [
        ("protocol", f"{run.summary} ({run.config.protocol})"),
        (
            "task",
            "find bounds of the columns"
            if run.config.row.finds_bounds
            else "group similar records into "
            f"{'at most ' if run.config.choose_k else ''}{format_count(public.k, 'cluster')}",
        ),
        ("records", f"at most {run.n_total:,} in all (a public bound that the parties state, not a count)"),
    ]
    if run.inputs.caps:
        rows.append(
            ("at each client", f"at most {', '.join(f'{cap:,}' for cap in run.inputs.caps)}, in the order of ranks")
        )
    if run.foreseen is not None:
        rounds = {release.round for release in run.foreseen.releases}
        rows.append(("rounds with a release", str(len(rounds))))
    if run.config.min_size:
        rows.append(
            (
                "smallest cluster",
                f"the files of the result have no cluster whose {'noisy ' * (run.unit is not None)}size is below "
                f"{run.config.min_size:,}: it is left out when the rounds are over. Whoever sees sums or centres of "
                "the rounds (see Who could learn what) sees those of small clusters, too",
            )
        )
    if run.config.unit is not None:
        rows.append(
            ("one record", f"all rows of one person at one client, identified by the column {run.config.unit}, merged")
        )
    if run.inputs.categories.lists:
        columns = ", ".join(column for column, _ in run.inputs.categories.lists)
        rows.append(("categories", f"one feature of 0 and 1 for each category of a public list: {columns}"))
    if run.expected is not None:
        rows.append(("what to expect", run.expected))
    if run.inputs.dataset is not None:
        rows.append(
            ("data", f"the public data set {run.inputs.dataset.name}, split among the clients: a demonstration")
        )
    yield Listing(("what", "value"), rows)
    bounds = run.values["bounds"]
    if bounds is None:
        yield Text(
            "Features and bounds: each party states the names and bounds of its own columns when the run starts."
        )
        return
    shown = [(name, show_value(low), show_value(high)) for name, (low, high) in bounds.items()]
    yield Listing(("feature", "lowest", "highest"), shown, title="Features and their public bounds")
    if about := run.inputs.bounds.about:
        yield Text(
            "Where the bounds are from, as their file says (what a run spent for them adds up with this one, in each "
            "site's ledger):"
        )
        yield Items([printable(line)[:_MOST_COMMENT] for line in about[:_MOST_COMMENTS]])
    named = run.inputs.bounds.names or ()
    chosen = ", ".join(run.config.columns or named)
    whence = "" if run.config.columns else ", which are those that the bounds name"
    yield Text(
        "Values outside are clipped to the bounds. "
        + (
            f"Columns used: {chosen}{whence}."
            if chosen
            else "Columns used: all numeric columns of each site's file; neither run file nor bounds name any."
        )
    )


def _staying(run: PlannedRun) -> Iterator[Block]:
    """Describe where data are."""
    flow = run.flow
    own = "columns and ids" if run.vertical else "records"
    rows = [
        (f"each site's {own}", "at that site: in its own file or database, and in its own process (memory, or disk)"),
        ("whatever leaves", "described by the package that adds this protocol" if flow is None else flow.records),
    ]
    if flow is not None:
        rows += [("clusters of single records", flow.labels), ("the result", flow.result), *flow.further]
    yield Listing(("data", "where"), rows)


def _leaving(run: PlannedRun) -> Iterator[Block]:
    """List messages and releases."""
    flow = run.flow
    if flow is not None:
        yield Text(
            "Every message of this run, and what can be read in it. Messages travel inside TLS 1.3; outside it the "
            "network can read START, VERDICT, ABORT, its acknowledgement and DONE (and, without a roster, "
            "certificates). It also sees who sends how much to whom, and when."
        )
        rows = [(one.name, one.about, one.route, one.server, one.others) for one in flow.sent(run.facts)]
        reader, rest = flow.readers
        yield Listing(("message", "what it is for", "from, to", f"the {reader} can read", f"{rest} can read"), rows)
    else:
        yield Text("Messages: this protocol comes from another package, which does not list them. Ask its authors.")
    if run.foreseen is None:
        yield Text(f"Releases and their noise: {run.why_unforeseen}.")
        return
    private = run.unit is not None
    yield Text(
        "Releases: what is revealed to somebody, how much noise it carries, and how far one unit (see The promise) can "
        "move it. Noise of 2 means: the standard deviation (Laplace: the scale) of the noise is twice that far."
        if private
        else "Releases: what is revealed to somebody, and the noise on it."
    )
    if run.foreseen.note:
        yield Text(f"{run.foreseen.note[:1].upper()}{run.foreseen.note[1:]}.")
    released = list(_release_rows(run.foreseen.releases))
    if private:
        yield Listing(("release", "rounds", "seen by", "noise", "noise over what one unit moves"), released)
    else:
        yield Listing(("release", "rounds", "seen by", "noise"), [row[:4] for row in released])


def _release_rows(releases: Sequence[Release]) -> Iterator[tuple[str, ...]]:
    """Format equal releases of several rounds as one row."""

    def kind(release: Release) -> tuple[str, str, str]:
        return release.name, release.mechanism, release.seen_by

    for (name, mechanism, seen_by), group in itertools.groupby(sorted(releases, key=kind), key=kind):
        own = list(group)
        low, *_, high = sorted(one.noise_multiplier for one in (*own, own[0]))
        ratio = f"{low:.3g}" if f"{low:.3g}" == f"{high:.3g}" else f"{low:.3g} to {high:.3g}"
        if mechanism == SKETCH_ROWS:
            count = sum(one.rows for one in own)
            ratio = f"{format_count(count, 'row')}; by itself each has epsilon 1 / {ratio}"
        noise = "none: exact" if mechanism == "none" else mechanism
        yield name, str(len({one.round for one in own})), seen_by, noise, ratio


def _learning(run: PlannedRun) -> Iterator[Block]:
    """Describe who sees what, alone and together."""
    sights = run.sights
    if sights is None:
        yield Text("This protocol comes from another package, which must say who sees what. Ask its authors.")
        return
    for title, verb, kinds in (("Alone", "sees", sights.alone), ("Together", "see", sights.together)):
        rows = [(one.who, one.sees, one.protection) for one in kinds]
        yield Listing(("who", verb, "what stands between that and the records"), rows, title=title)
    yield Text(
        "That parties do not combine what they have is an assumption. The program cannot check it; agreements "
        "between the parties must."
    )


def _promise(run: PlannedRun) -> Iterator[Block]:
    """State the claim, and what it means."""
    if run.unit is None:
        yield Text(_short_promise(run))
        yield Text(
            "What protects records then is only that messages do not reach those who could read them; the sections "
            "above say who they are."
        )
        return
    if run.foreseen is None:
        yield Text(
            f"Asked for: epsilon {format_epsilon(run.config.epsilon)}, for {run.unit}. The exact claim is missing: "
            f"{run.why_unforeseen}."
        )
        yield Items(promise_words(run.config.epsilon, 0.0, run.unit), title="What epsilon alone says in plain words")
        return
    found = run.foreseen.claim
    stated = found.sentence(spent(run.foreseen.releases, found.delta), n_total=run.n_total)
    yield Text(f"What the report of this run will claim if it goes as planned: {stated}")
    yield Items(promise_words(found.epsilon, found.delta, found.unit or "", found.neighbours), title="In plain words")
    yield Items(list(_conditions(run, found)), title="Conditions")


def _conditions(run: PlannedRun, claim: Claim) -> Iterator[str]:
    """List the conditions of the promise."""
    lying = run.masking == "threshold" and run.roster is not None
    yield f"All parties follow the protocol{', but for those that the next sentence names' if lying else ''}."
    yield f"The promise is against {claim.against}, and against nobody else."
    if claim.bounded:
        yield f"All clients together hold at most {run.n_total:,} records."
    yield (
        "Bounds, N, k, columns, epsilon and delta were chosen without looking at the records, and so was which result "
        "of several is used."
    )
    yield "Nobody breaks ChaCha20 or TLS 1.3: the masks and the bits behind the noise rest on them."
    yield "Launcher and computers of the parties can be trusted."
    for part in "; ".join(claim.conditions).split("; "):
        text = part.removeprefix("that ")
        if text and text != "all parties follow the protocol":
            yield f"{text[:1].upper()}{text[1:]}."
    sentence = unit_sentence(run.config)
    if sentence is not None:
        yield f"The unit is {sentence}."


def _study(run: PlannedRun) -> Iterator[Block]:
    """List finished runs on the same records, and what all spend together."""
    known = {one.run for one in run.earlier}
    if run.follows and run.follows not in known:
        yield Text(
            f"This run goes on from run {run.follows[:16]}, whose result it describes, and adds to what that one has "
            "spent. Its folder was not given: fastlloyd dossier --earlier DIR lists it, and says the sum."
        )
    if not run.earlier:
        return
    rows = [
        (one.run[:16], one.protocol, one.created, one.after[:16], _spent(one.spent, one.delta)) for one in run.earlier
    ]
    rows.append(("this run", run.config.protocol, "planned", run.follows[:16], _short_spent(run)))
    yield Listing(("run", "protocol", "when", "goes on from", "spends"), rows)
    if run.foreseen is None:
        yield Text(f"What all spend together cannot be said: {run.why_unforeseen}.")
        return
    together = spent_together(run.earlier, run.foreseen.releases, run.delta or 0.0)
    yield Text(
        f"All together: {_spent(*together)}, composed as if all runs were fixed in advance, for whoever all of them "
        "protect. Only the runs that were named here are counted; the ledger of each site counts all of its runs "
        "(fastlloyd ledger), and a lifetime budget (--budget) limits them."
    )


def _spent(epsilon: float, delta: float) -> str:
    """Format what was spent."""
    if math.isinf(epsilon):
        return "no epsilon holds"
    return f"epsilon {format_epsilon(epsilon)}" + (f", delta {delta:.3g}" if delta else "")


def _short_spent(run: PlannedRun) -> str:
    """Format what this run spends."""
    if run.unit is None:
        return "no epsilon holds"
    if run.foreseen is None:
        return f"epsilon {format_epsilon(run.config.epsilon)}"
    return _spent(spent(run.foreseen.releases, run.delta or 0.0), run.delta or 0.0)


def _budget(run: PlannedRun) -> str:
    """Describe the limit on repetition."""
    if run.unit is None:
        return "Without noise no budget can limit how often this is done: one such run counts as infinite."
    config = run.config
    named = "names a state directory" if config.state_dir is not None else "names no state directory"
    limit = "no lifetime limit" if config.budget is None else f"the limit epsilon {format_epsilon(config.budget)}"
    kept = " and ".join(f"epsilon {format_epsilon(one.epsilon)} at delta {one.delta:.3g}" for one in run.limits)
    return (
        f"The run file, with what this site adds to it, {named} and sets {limit}."
        + (f" An earlier run set a limit in the state directory, which holds: {kept}." if kept else "")
        + " Each other site may have its own, with --state-dir and --budget. Without a ledger over all runs nothing "
        "counts them. With a limit, a run that would exceed it ends with exit code 4 before anything is released."
    )


def _values(run: PlannedRun) -> Iterator[Block]:
    """List everything public."""
    yield Text(
        "Everything that must be the same at all parties; links are confirmed with a digest of it. Digest of all "
        f"values below: {group_hex(digest(run.values))}."
    )
    yield Listing(("name", "value"), run.rows)
