"""What a run with a liar in it shows from outside: exit codes, sentences, files; nothing of the parties' inside."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fastlloyd.errors import EXIT_BUDGET, EXIT_BUG, EXIT_INPUT, EXIT_OK, EXIT_PEER, Reason
from tests.adversary.arena import Ended

PARTY = re.compile(r"\bthe server\b|\bclient \d+\b")
_SENTENCE = re.compile(r"^fastlloyd: (?:(?:client \d+|the server): )?(.*)$")
# The progress line may return to its beginning.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_KNOWN = (EXIT_OK, EXIT_INPUT, EXIT_PEER, EXIT_BUDGET)


# What can be wrong with how the honest parties ended:
#   crash         one died of a signal, or with a code that is none of ours
#   hang          one had to be killed, or left a process behind
#   bug           one ended with exit code 70
#   trace         one printed a stack trace
#   escape        a control character reached an output
#   disagreed     two have different exit codes
#   wrong_name    the bytes say who lied, and a sentence names another, or none names anybody
#   differ        two clients wrote other centroids
#   result_after  one wrote a result although the parties had been told different things
FAULTS = ("crash", "hang", "bug", "trace", "escape", "disagreed", "wrong_name", "differ", "result_after")


def judge(
    ended: Ended,
    liar: int | None,
    *,
    provable: bool,
    equivocates: bool,
    names: Sequence[str] | None = None,
) -> dict[str, bool]:
    """Judge the honest parties of a run; give each of `FAULTS`.

    Parameters
    ----------
    liar : int or None
        None where no party lies, but the network between them.
    provable, equivocates : bool
        As in `Lie`.
    names : sequence of str, optional
        Under a roster, what each rank is called.
    """
    honest = [rank for rank in range(len(ended.codes)) if rank != liar]
    codes = [ended.codes[rank] for rank in honest]
    said = [ended.said[rank] for rank in honest]
    # What a lying server tells of others reaches those that it has not lied to from nobody else.
    heard = [ended.said[rank] for rank in honest if liar or rank in ended.told]
    failed = any(code != EXIT_OK for code in codes)
    return {
        "crash": any(code is not None and (code < 0 or code not in (*_KNOWN, EXIT_BUG)) for code in codes),
        "hang": any(code is None for code in codes) or ended.left > 0,
        "bug": EXIT_BUG in codes,
        "trace": any("Traceback" in text for text in said),
        "escape": any(_CONTROL.search(text) for rank in honest for text in (ended.out[rank], ended.said[rank])),
        # One side only notices a connection cut behind the last word; a lying server tells each what it likes.
        "disagreed": bool(liar) and len(set(codes)) > 1,
        "wrong_name": provable and failed and bool(ended.told) and liar is not None and misnamed(heard, liar, names),
        "differ": len({ended.centers[rank] for rank in honest if rank and ended.centers[rank]}) > 1,
        "result_after": equivocates and bool(ended.told) and any(ended.results[rank] for rank in honest),
    }


def sentences(text: str) -> list[str]:
    """Return the sentences of a party's errors, without its own name in front."""
    found = (_SENTENCE.match(line) for line in text.splitlines())
    return [match[1] for match in found if match]


def misnamed(said: Sequence[str], liar: int, names: Sequence[str] | None = None) -> bool:
    """Whether some sentence names parties but not the liar, or none names it."""
    own = {"the server" if liar == 0 else f"client {liar}"}
    pattern = PARTY
    if names is not None:
        own.add(names[liar])
        pattern = re.compile("|".join([PARTY.pattern, *(rf"\b{re.escape(name)}\b" for name in names)]))
    named = [
        set(pattern.findall(sentence))
        for text in said
        for sentence in sentences(text)
        # Of whom saw it: they blame nobody.
        if not any(reason.sentence in sentence for reason in (Reason.CONTRADICTION, Reason.RESULTS_DIFFER))
    ]
    spoken = [found for found in named if found]
    return not spoken or any(not found & own for found in spoken)
