"""What a run does not promise, and what people have to settle before it.

Source: docs/privacy.md, "What breaks the promise"; docs/security.md, "Parties that deviate" and "Known limits".
"""

from __future__ import annotations

from collections.abc import Iterator

from fastlloyd.dossier.planned_run import PlannedRun
from fastlloyd.privacy.delta import large_delta
from fastlloyd.report.unit import format_epsilon
from fastlloyd.run.promise import short_unit, unit_sentence


def not_promised(run: PlannedRun) -> Iterator[str]:
    """List what must not be read into the promise."""
    if run.unit is None:
        yield "Differential privacy: none. What a party learns is limited by the tables above and by nothing else."
    else:
        yield (
            "That nothing is learnt about groups. To find groups is the purpose, and a person may be judged by a "
            "group, having taken part or not."
        )
        yield (
            f"More than the stated epsilon says: the run limits what {short_unit(run.unit)} changes, and does not make "
            "it vanish."
        )
    if run.unit is not None:
        yield "Anything about repeated runs, unless a ledger counts them: epsilons of runs on the same people add up."
    if run.flow is not None and run.flow.server_noise:
        yield (
            "That the server added the noise. It says so and signs it, but one that adds less is not noticed. Towards "
            "a server that kept its noise and comes by the result, the sizes of the last round are exact."
        )
    if run.masking == "pairwise" and run.unit is not None:
        yield (
            "That each client added its share of noise: one that adds none is not noticed, and counts as one whose "
            "share is known."
        )
    if run.vertical:
        yield (
            "That nobody learns who is in the data: the parties compare their lists of ids, or find the common ones, "
            "and know how many there are."
        )
    yield "That parties which lie about their own records are noticed: they can move the result (poisoning)."
    yield "Silence about sizes: how long a party takes tells roughly how many records it has."
    if run.unit is not None:
        yield "A useful result: noise may outweigh what is there. fastlloyd plan says what to expect."
    yield "Protection of the computers, files, logs and results of the parties, which is theirs to provide."
    yield "An audit: nobody else has audited this program."


def open_points(run: PlannedRun) -> Iterator[str]:
    """List what somebody has to settle before the run."""
    if not run.purpose:
        yield "State the purpose, and why this processing is needed for it."
    if run.roster is None:
        yield "Make a roster, compare the fingerprints, and make this dossier again with --roster."
    else:
        yield "Compare the fingerprints above with their owners, if that was not done."
    if run.foreseen is None:
        yield f"Find out the exact claim and the releases with their noise: {run.why_unforeseen}."
    if run.unit is None:
        yield "Decide whether a run without differential privacy is acceptable at all, and why."
    else:
        yield (
            f"Decide whether epsilon {format_epsilon(run.config.epsilon)} is acceptable, and write down why: no law "
            "or standard sets a number."
        )
        note = None if run.delta is None else large_delta(run.delta, run.n_total)
        if note is not None:
            yield f"Decide whether delta is acceptable: {note}."
        if run.config.budget is None:
            yield (
                "Agree on a lifetime budget (--state-dir, --budget) at each site, and on what happens when it is spent."
            )
        yield f"Confirm that no person stands behind several units of privacy. The unit is {unit_sentence(run.config)}."
        expected = None if run.foreseen is None else run.foreseen.expected
        if expected is not None and expected.verdict in ("poor", "noise"):
            yield f"Decide whether such a result is worth the processing: {run.expected or expected.sentence}."
    yield "Confirm that bounds, categories, N, k, columns and epsilon were chosen without looking at the records."
    if run.common.dataset is None and not run.vertical and not run.config.columns and run.common.bounds.names is None:
        yield "Name the columns in the run file: as it is, all numeric columns of each site's file are used."
    yield from _trust_points(run)
    if run.config.evaluate:
        yield "Take --evaluate out: it computes figures from the true records."
    yield "Decide who may have the result, for what, and for how long; and the same for state, reports and logs."
    yield "Have each site approve exactly these values: fastlloyd agree, then join --approval."


def _trust_points(run: PlannedRun) -> Iterator[str]:
    """Say what must be agreed on about collusion."""
    sights = run.sights
    weaker = () if sights is None else [one for one in sights.together if one.weaker]
    named = [one.who for one in (*run.unprotected, *weaker) if not one.public]
    if named:
        yield f"Agree in writing that these will not put together what they have: {'; '.join(named)}."
    if run.flow is not None and run.flow.server_noise:
        yield (
            "Choose an operator of the server that is none of the sites, and keep the result from it; if the result is "
            "to be published, consider --masking pairwise."
        )
