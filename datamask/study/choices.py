"""The choices of a pool that judges read: the arms, random draws, and those of the controls; each of equal bytes.

    for name, draw, choice in choices(texts, {"default": mask}, limit=4_600_000, draws=8, seed=0):
        ...                                              # choice: exactly `limit` bytes

Two controls are made from the random draws themselves. SHUFFLED: the words of 30 % of a draw's documents in another
order. JUNK: a pool in which 30 % of the documents were replaced by boilerplate, garble, lines that break off, and
near-copies of a few others, from which a draw is taken; CLEAN: a draw from the rest of that pool.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from datamask.config import ResolvedSelect
from datamask.errors import InputError
from datamask.study.targets import BETWEEN, cut_texts, first_rows

RANDOM, SHUFFLED, JUNK, CLEAN = "random", "random, words shuffled", "planted junk", "planted junk left out"
CONTROLS = (SHUFFLED, JUNK, CLEAN)
SHARE = 0.3  # of the documents that a control spoils
_WORDS = re.compile(rb"(\s+)")
_BOILERPLATE = (
    b"Home | About us | Contact | Log in | Register | Cart (0)",
    b"This site uses cookies. By continuing to browse you agree to our use of cookies. Accept all | Settings",
    b"Share this: Facebook Twitter Pinterest WhatsApp Email Print",
    b"Copyright (c) All rights reserved. Terms of use | Privacy policy | Sitemap",
    b"Click here to subscribe to our newsletter and never miss an update!",
    b"Related posts: Read more >> Load more comments Leave a reply Cancel reply",
)
Mask = npt.NDArray[Any]  # (N,) bool, or how often each document is taken


def choices(
    texts: Sequence[bytes],
    arms: Mapping[str, Mask],
    limit: int,
    draws: int,
    seed: int | Sequence[int],
    controls: int = 0,
) -> Iterator[tuple[str, int, bytes]]:
    """(arm, draw, choice): `draws` random ones, one of each arm, and `controls` of each control.

    :param texts: the pool's documents; arms: name -> (N,) bool.
    :param limit: bytes of every choice.
    :raises InputError: an arm, or the pool, holds fewer bytes than `limit`; an arm has the name of a draw or control.
    """
    seeds = [seed] if isinstance(seed, int) else list(seed)
    for draw in range(draws):
        yield RANDOM, draw, _named(RANDOM, texts, limit, [*seeds, draw])
    for name, mask in arms.items():
        if name in (RANDOM, *CONTROLS):
            raise InputError(f"an arm is called {name!r}, which is what the judge calls its own; give it another name")
        yield name, 0, _named(name, [texts[row] for row in rows_of(mask).tolist()], limit, [*seeds, 0])
    sizes = [len(BETWEEN) + len(text) for text in texts]
    for draw in range(controls):
        generator = np.random.default_rng([*seeds, draw, 59])
        order = np.random.default_rng([43, *seeds, draw]).permutation(len(texts))  # as `cut_texts`: RANDOM's documents
        taken = [texts[row] for row in first_rows(order, sizes, limit)]
        yield SHUFFLED, draw, _join(shuffle_words(taken, generator), limit)
        spoiled = generator.random(len(texts)) < SHARE
        clean = first_rows(order[~spoiled[order]], sizes, limit)
        yield CLEAN, draw, _join([texts[row] for row in clean], limit)
        yield JUNK, draw, _join(_junked(texts, order, spoiled, limit, generator), limit)


def rows_of(mask: Mask) -> npt.NDArray[np.intp]:
    """Row numbers, ascending, each as often as it is taken."""
    return np.repeat(np.arange(len(mask)), mask.astype(np.int64))


def bytes_of(texts: Sequence[bytes], mask: Mask) -> int:
    """Bytes a choice can be read to."""
    return sum(len(BETWEEN) + len(texts[row]) for row in rows_of(mask).tolist())


def most_bytes(texts: Sequence[bytes], tokens: npt.NDArray[np.int64], settings: ResolvedSelect) -> int:
    """What no choice within the settings' budget can hold more of: the longest documents, or the cheapest by token."""
    sizes = np.array([len(BETWEEN) + len(text) for text in texts])
    if not settings.in_tokens:
        count = settings.budget_documents or round((settings.select_ratio or 1.0) * len(texts)) + 1
        return int(np.sort(sizes)[::-1][:count].sum())
    order = np.repeat(np.argsort(-sizes / tokens, kind="stable"), settings.repeat)
    budget = settings.budget_tokens or (settings.token_ratio or 0) * int(tokens.sum())
    taken = int(np.searchsorted(np.cumsum(tokens[order]), budget)) + 1
    return int(sizes[order][:taken].sum())


def shuffle_words(texts: Sequence[bytes], generator: np.random.Generator) -> list[bytes]:
    """The texts, in SHARE of which the words are in another order; the white space and the length stay."""
    spoiled = set(generator.permutation(len(texts))[: round(SHARE * len(texts))].tolist())
    return [_shuffled(text, generator) if row in spoiled else text for row, text in enumerate(texts)]


def _shuffled(text: bytes, generator: np.random.Generator) -> bytes:
    parts = _WORDS.split(text)
    words = parts[::2]
    parts[::2] = [words[place] for place in generator.permutation(len(words))]
    return b"".join(parts)


def _junked(
    texts: Sequence[bytes], order: npt.NDArray[np.intp], spoiled: Mask, limit: int, generator: np.random.Generator
) -> list[bytes]:
    """The documents in their order, the spoiled ones replaced by junk, up to `limit` bytes."""
    copied = [texts[row] for row in order[~spoiled[order]][:4].tolist()]
    made: list[bytes] = []
    size = 0
    for row in order.tolist():
        if size >= limit:
            break
        made.append(_junk(texts[row], copied, generator) if spoiled[row] else texts[row])
        size += len(BETWEEN) + len(made[-1])
    return made


def _junk(text: bytes, copied: Sequence[bytes], generator: np.random.Generator) -> bytes:
    """One of four kinds of junk, about as long as the document whose place it takes."""
    kind = generator.integers(4)
    if kind == 0:  # boilerplate
        lines = generator.integers(0, len(_BOILERPLATE), 1 + len(text) // 70)
        return b"\n".join(_BOILERPLATE[line] for line in lines)
    if kind == 1:  # garble: every third letter another
        values = np.frombuffer(text, dtype=np.uint8).copy()
        hit = generator.random(len(values)) < 1 / 3
        values[hit] = generator.integers(33, 127, int(hit.sum()), dtype=np.uint8)
        return values.tobytes()
    if kind == 2:  # lines that break off in the middle of a word
        return b"\n".join(text[start : start + 25] for start in range(0, len(text), 100))
    words = _WORDS.split(copied[int(generator.integers(len(copied)))])  # a near-copy: one word in fifty is gone
    return b"".join(word for word in words if generator.random() > 0.02)


def _join(texts: Sequence[bytes], limit: int) -> bytes:
    joined = b"".join(BETWEEN + text for text in texts)[:limit]
    if len(joined) < limit:
        raise InputError(
            f"the pool holds too little text for the controls at {limit:,} bytes a choice; judge fewer bytes"
        )
    return joined


def _named(name: str, texts: Sequence[bytes], limit: int, seed: Sequence[int]) -> bytes:
    try:
        return cut_texts(texts, limit, seed)
    except InputError as error:
        raise InputError(f"arm {name}: {error}") from error
