"""Two texts side by side, with what differs marked, and excerpts that are safe to show anywhere.

found = compare(dropped, kept)
found.first      # [["same", "The "], ["only", "quick "], ["gap", "212 words"], …]
found.shared     # share of the two texts' distinct words that both have
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from difflib import SequenceMatcher

COMPARED = 800  # words of each text that are compared, the beginning; difflib is quadratic, cubic where words repeat
REPEATED = 8  # times each word occurs, on average, above which difflib's own rule leaves out the commonest
AROUND = 8  # words shown on either side of a difference; what lies between is a gap
SHOWN = 90  # words of a side that are shown, gaps left out
# letters and digits of a script with spaces; a single letter of a script without; anything else
_WORD = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]|\w(?:\w(?![\u3040-\u30ff\u3400-\u9fff]))*|[^\w\s]"
)

Parts = list[list[str]]  # [kind, text]: same, only (on this side), gap (left out: how much)


@dataclass(frozen=True)
class Differences:
    """Both texts in parts, bounded, and how much they share."""

    first: Parts
    second: Parts
    shared: float  # Jaccard similarity of the sets of words, case folded, over the whole texts


def clean_line(text: str | None, characters: int | None = None) -> str:
    """A text on one line, safe to show: no control, private-use or direction-changing characters."""
    read = (text or "") if characters is None else (text or "")[: 4 * characters]
    line = " ".join(read.split())
    if line.isprintable():  # no character of the categories C and Z but the spaces between words
        return line
    hidden = {ord(c): None for c in set(line) if unicodedata.category(c)[0] == "C"}
    return " ".join(line.translate(hidden).split())


def excerpt(text: str | None, characters: int) -> str:
    """The beginning of a text, as `clean_line` gives it."""
    line = clean_line(text, characters)
    return line if len(line) <= characters else line[: characters - 1] + "…"


def compare(first: str, second: str) -> Differences:
    """Both texts' words side by side (difflib's longest matching blocks), equal runs cut short."""
    a, b = _words(first), _words(second)
    left, right = a[:COMPARED], b[:COMPARED]
    head = 0
    while head < min(len(left), len(right)) and left[head].strip() == right[head].strip():
        head += 1
    tails = [[word.strip() for word in side[head:]] for side in (left, right)]
    repeated = len(tails[1]) > REPEATED * len(set(tails[1]))
    matcher = SequenceMatcher(None, tails[0], tails[1], autojunk=repeated)
    sides: tuple[Parts, Parts] = ([], [])
    blocks = [(0, 0, head), *((i + head, j + head, n) for i, j, n in matcher.get_matching_blocks())]
    done = [0, 0]
    for i, j, size in blocks:
        for side, words, place in ((0, left, i), (1, right, j)):
            if place > done[side]:
                sides[side].append(["only", "".join(words[done[side] : place])])
            if size:
                sides[side].append(["same", "".join(words[place : place + size])])
            done[side] = place + size
    first_parts, second_parts = (
        _bounded(side, len(words[COMPARED:])) for side, words in zip(sides, (a, b), strict=True)
    )
    return Differences(first_parts, second_parts, _jaccard(a, b))


def shared_words(first: str, second: str) -> float:
    """Jaccard similarity of the sets of words, case folded; 1 for two texts without any."""
    return _jaccard(_words(first), _words(second))


def _jaccard(a: list[str], b: list[str]) -> float:
    first, second = ({word.casefold().strip() for word in side} for side in (a, b))
    return len(first & second) / len(first | second) if first | second else 1.0


def _words(text: str) -> list[str]:
    """Words and marks, each with the space that follows it."""
    line = clean_line(text)
    starts = [match.start() for match in _WORD.finditer(line)]
    return [line[start:end] for start, end in zip(starts, [*starts[1:], len(line)], strict=True)] if starts else []


def _bounded(parts: Parts, cut: int) -> Parts:
    """At most SHOWN words, long equal runs as a gap; `cut` words were not compared."""
    shown: Parts = []
    left = SHOWN
    for place, (kind, text) in enumerate(parts):
        words = _words(text)
        if left <= 0:
            cut += sum(len(_words(rest)) for _, rest in parts[place:])
            break
        if kind == "same" and len(words) > 2 * AROUND + 4:
            before = AROUND if place else 2 * AROUND
            last = place + 1 == len(parts)
            after = 0 if last else AROUND
            shown.append(["same", "".join(words[:before])])
            shown.append(["gap", f"{len(words) - before - after:,} words the same"])
            if after:
                shown.append(["same", "".join(words[-after:])])
            left -= before + after
        elif len(words) > left:
            shown.append([kind, "".join(words[:left])])
            cut += len(words) - left
            left = 0
        else:
            shown.append([kind, text])
            left -= len(words)
    if cut > 0:
        shown.append(["gap", f"{cut:,} words more"])
    return shown
