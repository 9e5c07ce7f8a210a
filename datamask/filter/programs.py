"""Programs: their identifiers and literals tell them apart, whatever the comments and the licence above say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from datamask.quality.code_shapes import code_probability
from datamask.text.batch_words import BatchWords

READ = 1 << 12  # characters, as they are and without comments and docstrings, that tell whether a text is a program
CODE = 0.1  # probability from which it may be one: .99 of 1,161 programs reach it, .03 of 5,315 other texts
MARKS, FEWEST = "(){}[];=<>_#\\&+^~`", 0.004  # a text with a smaller share of these marks is asked no further
_DIRECTIVE = r"(?!\[|[ \t]*(?:include|define|if|undef|el|endif|pragma|error))"
# A space after `(*`, for `f(*rest)` and `(*call)(value)` open no comment that a later `(void *)` would close.
_BLOCKS = (("/*", "*/"), ("(* ", "*)"), ("(*\n", "*)"), ("(** ", "*)"), ("<!--", "-->"))
_BLOCK = "|".join(f"{re.escape(begins)}.*?{re.escape(ends)}" for begins, ends in _BLOCKS)
_DOCSTRING = r"\"\"\".*?\"\"\""
_LINE = rf"//|#{_DIRECTIVE}|--|;|%|\"(?=\s)"
_COMMENT = re.compile(
    rf"{_BLOCK}|^[ \t]*(?:{_LINE}|\*)[^\n]*|(?<=[ \t;{{}})])(?://|#)[ \t][^\n]*", re.DOTALL | re.MULTILINE
)
_TOKEN = re.compile(r"\w+|[-+*/%<>=!&|^~?]")
_HEAD = re.compile(rf"(?:\s*(?:{_BLOCK}|{_DOCSTRING}|(?:{_LINE})[^\n]*))+", re.DOTALL)
_NO_CODE = re.compile(rf"{_DOCSTRING}|{_COMMENT.pattern}", _COMMENT.flags)


def are_programs(texts: Sequence[str]) -> np.ndarray:
    """(texts,) bool: source code, comments and docstrings left out or not, or little but a comment above it."""
    found = np.array([_headed(text) for text in texts], bool)
    begun = [text[:READ] for text in texts]
    more = [text[: 4 * READ] for text in texts]
    asked = [place for place, part in enumerate(more) if sum(map(part.count, MARKS)) >= FEWEST * len(part)]
    for strip in (False, True):  # most programs need no second reading
        asked = [place for place in asked if not found[place]]
        if asked:
            read = [_NO_CODE.sub(" ", more[place])[:READ] if strip else begun[place] for place in asked]
            found[asked] = code_probability(BatchWords(read)) > CODE
    return found


def _headed(text: str) -> bool:
    """Whether a comment of several lines at its beginning, such as a licence, is half of a text with more below."""
    head = _HEAD.match(text[: 4 * READ])
    if head is None or 2 * head.end() < len(text) or not text[head.end() :].strip():
        return False
    return head.group().strip().count("\n") > 1  # one line may be a heading of Markdown


def tokens_of(text: str) -> list[str]:
    """The identifiers, literals (docstrings too) and operators in their order; if there are none, those of comments."""
    for begins, ends in _BLOCKS:  # of one that nothing closes each would be looked for to the end of the text
        closed = text.rfind(ends) + 1
        text = text[:closed] + text[closed:].replace(begins, f"{begins[0]}\0{begins[1:]}")
    return _TOKEN.findall(_COMMENT.sub(" ", text)) or _TOKEN.findall(text)


@lru_cache(maxsize=16)  # a text is in several pairs, and these lie near one another
def _joined(text: str) -> str:
    return f" {' '.join(tokens_of(text))} "


def another_program(one: str, other: str, contained: bool) -> bool:
    """Whether neither of two programs is the other by `tokens_of`, nor a part of it in one piece where `contained`."""
    mine, theirs = sorted((_joined(text) for text in (one, other)), key=len)
    return mine not in theirs if contained else mine != theirs
