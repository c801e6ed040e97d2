"""Texts of a dossier: files, keys, ends of a run, impact assessment; what epsilon says, and what is not promised.

Source: docs/security.md, "Files" and "Keys, rosters and the telephone"; docs/operations.md, "How a run ends" and "State
directory, budget, resume"; docs/data-protection.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from fastlloyd.dossier.blocks import Items, Listing, Text
from fastlloyd.dossier.planned_run import PlannedRun
from fastlloyd.privacy.calibration import large_delta
from fastlloyd.privacy.release import ADD_REMOVE
from fastlloyd.report.sight import operator_words
from fastlloyd.report.unit import format_epsilon
from fastlloyd.run.promise import short_unit, unit_sentence

_FILES = Listing(
    ("file", "where", "what is in it", "how long"),
    (
        (
            "state directory: ledger.jsonl with .key and .head, budget.json",
            "each site with --state-dir, mode 0600",
            "every release of this site's records in all runs, without a record; the key of the keyed digest of its "
            "records",
            "as long as the same people's records may be used again: it is the count of what was spent. Back it up; "
            "never delete it while records stay in use",
        ),
        (
            "state directory: runs.jsonl",
            "each site with --state-dir, mode 0600",
            "when this site's runs began and ended, with whom, and the verdict on each result; nothing of a record",
            "yours to decide",
        ),
        (
            "state directory: run/",
            "each site with --state-dir, during a run, mode 0600",
            "what a resume needs: secrets of masks and this site's own masked updates, which together give its exact "
            "sums",
            "the program deletes it when the run has ended well. After a broken run delete it unless you resume. "
            "Never back it up",
        ),
        (
            "state directory: held/, decisions.jsonl",
            "each site with --review, mode 0600",
            "a result until a person of the site releases or discards it; which results waited, and what was decided",
            "the result: until that decision. The decisions: yours to decide",
        ),
        (
            "report.json, report.html, ledger.jsonl, centroids.csv, clusters.csv, bounds.csv, sizes.csv, pictures",
            "all who have the result, in --output",
            "released values, public facts, the signatures of the parties",
            "yours to decide; with the roster they prove later what was claimed",
        ),
        (
            "server.json",
            "the server, where it does not have the result",
            "public facts of the run, no released value",
            "yours to decide",
        ),
        ("config.toml", "the same folder", "the configuration with this party's paths; no key", "with the result"),
        (
            "interrupted-RUN-client-I.ledger.jsonl",
            "the same folder, after a broken run without --state-dir",
            "releases that were paid for",
            "as long as the ledger: count them manually",
        ),
        (
            ".fastlloyd-RUN-I.ledger.jsonl with .key",
            "the same folder, during a run without --state-dir, mode 0600",
            "the ledger of this run",
            "the program deletes it when the run ends",
        ),
        (
            "fused.*.nbi, .nbc",
            "with the extra fast: beside the package, or in the user's numba cache",
            "machine code of the program, no value of any run",
            "until the package is removed",
        ),
        (
            "logs (--log-file), --metrics FILE",
            "each party that uses them",
            "times, ranks, rounds; by intention no record, mask, seed or key",
            "yours to decide",
        ),
        (
            "NAME.key",
            "its owner, mode 0600",
            "private key; encrypted if made with a passphrase",
            "until it is replaced in the roster",
        ),
    ),
    title="Files that stay",
)

_LABELS = (
    "labels_i.csv",
    "client i, in --output, mode 0600",
    "the cluster of each of its own records: not private, for its owner alone",
    "as long as its owner needs it; never published",
)
_RECORDS = (
    "records_i.txt",
    "client i, in --output, mode 0600; only under one launcher on several hosts without --state-dir",
    "what it would have heard about its own records: not private, for its owner alone",
    "until its owner has read it; never published",
)
_BASE = 0.01
_SURE = 1.0
_DELTA = (
    "Delta, {:.3g}, is what the promise leaves out: by itself it would not exclude that a record comes out whole with "
    "that chance."
)


def files(*, labels: bool) -> Listing:
    """Return the table of remaining files; `labels`: whether clients write labels of their own records."""
    return Listing(_FILES.head, (*_FILES.rows, *((_LABELS,) if labels else ()), _RECORDS), title=_FILES.title)


FILES_NOTE = Text(
    "Records are read from the site's own file or database and held in memory; the program writes no copy of them, "
    "unless they need more than --memory allows (by default a quarter of the machine), or a database's answer is "
    "larger than 16 MB. Then it works on a copy on the disk, of the state directory (of --output without one) or, for "
    "an answer, of temporary files: a file to which no path leads, mode 0600, that is gone when the process ends, "
    "however that comes; its blocks stay on the disk until they are used again. "
    "Memory is not overwritten after use, and swap and core dumps are the host's matter. No period of retention is "
    "built in: each site must set its own, and delete."
)

DELETING = Items(
    (
        "A file of the table stays until a person of the party deletes it, unless the table says that the program "
        "does. To delete one is to remove the file (rm). Blocks of the disk, backups and snapshots keep it until they "
        "are overwritten or expire: delete it there too, or encrypt the disk and its backups.",
        "A result that is not wanted any more: delete the folder of --output at each party that has it. Its releases "
        "stay in the ledger, since what others have received cannot be taken back.",
        "A result that waits (--review): fastlloyd discard deletes it, and notes the decision.",
        "A broken run that nobody will resume: delete the folder run/ of the state directory. Delete it before others: "
        "with a party's own messages it gives that party's exact sums.",
        "The ledger, its .key and budget.json: only when the records of these people will never be used again. Without "
        "them the program cannot know what was spent, and refuses to start until somebody makes a new state directory.",
    )
)

KEYS = Items(
    (
        "Each party makes its own key with fastlloyd keygen. The program sends no private key anywhere; only an "
        "aggregator needs a copy of the server's. Keys are encrypted only if made "
        "with a passphrase (keygen --passphrase): otherwise the file system must protect them.",
        "The roster pins the certificate of every party: nobody else is let in, and no authority can vouch for a "
        "stranger. It proves something only if the fingerprints were compared by telephone or in person.",
        "Links are TLS 1.3 with certificates on both sides. Secrets of masks are made anew for each run.",
        "There is no revocation list: a lost key is replaced in the roster, and the new roster goes to everybody.",
    )
)

ENDS = Listing(
    ("exit code", "what happened", "what others learn"),
    (
        ("0", "done", "the result, where it is theirs"),
        (
            "2",
            "a setting, a file or a site's records do not fit, or a site has not approved this run",
            "which party, and a reason of a fixed list; for bad records that is one bit. File, row and column stay on "
            "the owner's own screen",
        ),
        (
            "3",
            "a party was silent, gone, interrupted, or sent what was refused",
            "which party, and a reason of a fixed list",
        ),
        ("4", "a site's lifetime budget would be exceeded; nothing was released", "which site, and that this is why"),
        ("70", "a fault of the program", "that it ended"),
    ),
    title="How a run may end",
)

ENDS_NOTE = Text(
    "A run that fails before its files are written leaves no result. What had been released until then was released: "
    "it stays in the ledger and counts."
)

ASSESSMENT = Listing(
    ("question", "what this document gives", "what remains to you"),
    (
        (
            "Art. 35(7)(a): systematic description of the processing and its purposes",
            "what is computed, parties, flows of data, who receives what, files that stay",
            "the purpose and any legitimate interest; whose data these are, and their context; assets, people and "
            "contracts around the program; how long records are kept",
        ),
        (
            "Art. 35(7)(b): necessity and proportionality",
            "which features enter, under which bounds; in which form anything of a record leaves its owner; how much "
            "noise stands against each unit, if any; what to expect of the result",
            "the legal basis (Art. 6, 9); whether the purpose could be met with fewer features or people; whether the "
            "result is accurate enough to serve it",
        ),
        (
            "WP248, Annex 2: rights of the people (Art. 12 to 22)",
            "that what was released cannot be corrected or taken back for one person",
            "information, access, objection; how a later objection is handled. Leaving a person out works before a run "
            "only",
        ),
        (
            "WP248, Annex 2: processors and transfers (Art. 28, Chapter V)",
            "who the parties are and what each can read",
            "who is controller, joint controller or processor; agreements; countries. The program knows no places",
        ),
        (
            "Art. 35(7)(c): risks to rights and freedoms",
            "who could learn what, alone and together; what is promised, if anything, and what is not",
            "likelihood and severity for these people; harm by conclusions about groups, which no differential privacy "
            "prevents; unwanted change and loss of data at the sites",
        ),
        (
            "Art. 35(7)(d): measures and proof of compliance",
            "form of messages, noise if any, links, keys, ledger and budget, signed report, signed approvals",
            "protection of the hosts, access rights, training, audits; that nobody colludes, which is an assumption",
        ),
        (
            "Whether an assessment is required; prior consultation (Art. 35(1), 36)",
            "nothing",
            "the criteria of WP248 (sensitive data, large scale, matched data sets, vulnerable people and others) are "
            "about the whole undertaking",
        ),
        (
            "Whether messages or results are anonymous (Recital 26)",
            "what is computed from them at most, and against whom",
            "the judgement. This document does not say that masked, encrypted or released values are anonymous data",
        ),
        (
            "Advice of the officer, views of the people (Art. 35(2), 35(9))",
            "a text to begin with",
            "the advice and the views",
        ),
    ),
)

ASSESSMENT_NOTE = Text(
    "Questions as in Regulation (EU) 2016/679 (GDPR), Art. 35(7), and the guidelines WP248 rev.01, Annex 2. This is a "
    "description by the program, not legal advice and no assessment by itself."
)


def factor_words(epsilon: float) -> str:
    """Format e^epsilon, rounded up: 2.72, 148.5 or 'a factor above a million'.

    Examples
    --------
    >>> factor_words(1.0), factor_words(20.0)
    ('2.719', 'more than a million')
    """
    return "more than a million" if epsilon > math.log(1e6) else format_epsilon(math.exp(epsilon))


def promise_words(epsilon: float, delta: float, unit: str, neighbours: str = ADD_REMOVE) -> list[str]:
    """Explain what (epsilon, delta) promises about one unit of privacy.

    Parameters
    ----------
    epsilon, delta : float
    unit : str
        The difference between neighbours.
    neighbours : str
        The neighbouring relation, as in releases.

    Returns
    -------
    list of str
        Two sentences or three, each true by the definition alone.
    """
    plus = f" plus {delta:.3g}" if delta > 0.0 else ""
    worlds = "in one it takes part in the run, in the other it does not"
    if not neighbours.startswith("add-remove"):
        known = "that it is among the records is known in both"
        worlds = f"in one its values count, in the other they do not ({neighbours}); {known}"
    allowed = math.exp(min(epsilon, 50.0)) * _BASE + delta
    if allowed < _SURE:
        example = (
            "For example, whatever somebody would conclude with chance 1 % in the second world, they conclude with "
            f"chance at most {100.0 * allowed:.3g} % in the first."
        )
    else:
        example = (
            "For example, what somebody would conclude with chance 1 % in the second world, they may conclude with "
            "certainty in the first: an epsilon of this size limits little by itself."
        )
    return [
        f"Take {unit}. Compare two worlds: {worlds}, and all else is the same. The chance of any outcome "
        f"in the one world is at most {factor_words(epsilon)} times its chance in the other{plus}. This holds for "
        "all messages that those whom the promise is against receive in this run (not for when they come), for "
        "whatever they compute from them, and whatever else they know.",
        example,
        *([_DELTA.format(delta)] if delta > 0.0 else []),
    ]


def not_promised(run: PlannedRun) -> Iterator[str]:
    """List what is not promised."""
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
    if run.masking in ("pairwise", "threshold") and run.unit is not None:
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
    yield "Silence about sizes: the time that a party takes shows roughly how many records it has."
    if run.unit is not None:
        yield "A useful result: noise may outweigh what is there. fastlloyd plan says what to expect."
    yield "Protection of the computers, files, logs and results of the parties, which is theirs to provide."
    yield "An audit: nobody else has audited this program."


def open_points(run: PlannedRun) -> Iterator[str]:
    """List the decisions that people must make before the run."""
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
        if not run.limited:
            yield (
                "Agree on a lifetime budget (--state-dir, --budget) at each site, and on what happens when it is spent."
            )
        yield f"Confirm that no person stands behind several units of privacy. The unit is {unit_sentence(run.config)}."
        expected = None if run.foreseen is None else run.foreseen.expected
        if expected is not None and expected.verdict in ("poor", "noise"):
            yield f"Decide whether such a result is worth the processing: {run.expected or expected.sentence}."
    yield "Confirm that bounds, categories, N, k, columns and epsilon were chosen without looking at the records."
    if run.inputs.dataset is None and not run.vertical and not run.config.columns and run.inputs.bounds.names is None:
        yield "Name the columns in the run file: by default, all numeric columns of each site's file are used."
    yield from _trust_points(run)
    if run.config.evaluate:
        yield "Take --evaluate out: it computes figures from the true records."
    yield "Decide who may have the result, for what, and for how long; and the same for state, reports and logs."
    yield "Have each site approve exactly these values: fastlloyd agree, then join --approval."


def _trust_points(run: PlannedRun) -> Iterator[str]:
    """List agreements about collusion."""
    sights = run.sights
    weaker = () if sights is None else [one for one in sights.together if one.weaker]
    named = [one.who for one in (*run.unprotected, *weaker) if not one.public]
    if named:
        yield f"Agree in writing that these will not combine what they have: {'; '.join(named)}."
    if run.flow is not None and run.flow.server_noise:
        yield (
            "Choose an operator of the server that is none of the sites, and keep the result from it; if the result is "
            "to be published, consider --masking threshold."
        )
        words = operator_words(masking=run.masking, authenticated=run.roster is not None, private=run.unit is not None)
        if words is not None:
            yield f"Decide whether this is acceptable: {words}."
