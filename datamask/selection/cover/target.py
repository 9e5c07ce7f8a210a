"""The target: texts that the selection should cover, from files or the caller; and how much of them the pool holds.

    target = read_target(["tasks/boolq.jsonl.gz"])
    target.counts()                                     # (10,000,) of its hashed n-grams
    seen = Scan(target).look(single, document, texts)   # which documents hold 13 words in a row of it

Files are those the judge takes: JSON lines with `question` and `answer`, or with `text`, or plain text; .gz, .zst too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
from scipy.sparse import vstack

from datamask import storage
from datamask.config import ResolvedSelect
from datamask.corpus.text_files import holds_json_lines, json_objects, read_text_file
from datamask.errors import ConfigError, InputError
from datamask.filter.word_rows import WordRows
from datamask.text.ngrams import BUCKETS, count_ngrams, counted, hashed_words

FEWEST = 20  # words: a target of fewer is refused, as they make no distribution
FREQUENT = 2000  # so many of the target's most frequent words are looked for in the pool
KNOWN = 0.5  # the pool must hold at least this share of them, each counted as often as the target has it


@dataclass(frozen=True, eq=False)
class TargetTexts:
    """A target's texts. names: of its files; texts: one for each item; source: (items,) int64, places in names."""

    names: tuple[str, ...]
    texts: tuple[str, ...]
    source: np.ndarray

    def counts(self, buckets: int = BUCKETS) -> np.ndarray:
        """(buckets,) float64: counts of its hashed n-grams, all texts together.

        :raises InputError: hardly a word in them.
        """
        counts = np.asarray(count_ngrams(self.texts, buckets).sum(axis=0), np.float64).ravel()
        if counts.sum() < 2 * FEWEST - 1:
            words = int(counts.sum() + 1) // 2
            raise InputError(
                f"the target has {words or 'no'} words; a distribution of words needs {FEWEST} at least, "
                f"and some thousands to be good: name more or longer texts in select.target"
            )
        return counts

    @cached_property
    def key(self) -> str:
        """A hash of the texts and their files' names, 32 hex digits."""
        digest = blake2b(digest_size=16)
        for number, text in zip(self.source, self.texts, strict=True):
            digest.update(f"{self.names[number]}\0{text}\0".encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


def read_target(paths: Sequence[str]) -> TargetTexts:
    """The target of these files' texts. paths: files, or patterns of local ones.

    :raises InputError: a file is missing, is not text, or holds none; the message names it.
    """
    names: list[str] = []
    texts: list[str] = []
    source: list[int] = []
    for path in storage.expand_patterns(paths):
        found = [text for text in _read(path) if text.strip()]
        if not found:
            raise InputError(f"select.target: {path} holds no text; leave it out, or name one that does")
        texts += found
        source += [len(names)] * len(found)
        names.append(path.rstrip("/").rsplit("/", 1)[-1])
    target = TargetTexts(tuple(names), tuple(texts), np.array(source, np.int64))
    target.counts()  # a target without words is refused here
    return target


class Scan:
    """Looks for a target in the pool's texts: for runs of its words (leaks), and for its frequent words."""

    def __init__(self, target: TargetTexts) -> None:
        self.target = target
        self.rows = WordRows(target.texts)
        self.source = target.source[self.rows.text[self.rows.starts[:-1]]]  # of the first text with each row
        words = [single for single, _, _, _ in hashed_words(target.texts)]
        found, counts = np.unique(np.concatenate(words), return_counts=True)
        order = np.sort(np.argsort(-counts, kind="stable")[:FREQUENT])
        self.frequent, self.counts = found[order], counts[order]

    def look(self, single: np.ndarray, document: np.ndarray, texts: int) -> tuple[np.ndarray, np.ndarray]:
        """Looks through a block of texts, as `ngrams.hashed_words` yields them.

        Returns (texts,) int64, the target's file (place in `names`) of which each text holds a run of words, −1 if
        none; and (frequent,) bool, whether each frequent word is in these texts.
        """
        leak = np.full(texts, -1, np.int64)
        gram, at = self.rows.find(single, document)
        leak[document[at]] = self.source[gram]
        place = np.minimum(np.searchsorted(self.frequent, single), len(self.frequent) - 1)
        seen = np.zeros(len(self.frequent), bool)
        seen[place[self.frequent[place] == single]] = True
        return leak, seen

    def check(self, seen: np.ndarray) -> float:
        """The share of the target's frequent words, weighted by their counts, that the pool holds (`seen`).

        :raises InputError: less than `KNOWN`: the target is in a language, or of a kind, that the pool lacks.
        """
        share = float(self.counts[seen].sum() / self.counts.sum())
        if share < KNOWN:
            raise InputError(
                f"the pool's documents hold {share:.0%} of the target's words ({', '.join(self.target.names)}): it is "
                "in a language or of a kind that the pool lacks, and no choice can explain it; name another target"
            )
        return share


@dataclass(frozen=True, eq=False)
class PoolWords:
    """The n-grams of a pool and of its target, and the documents that leak the target."""

    ngrams: Any = None  # (N, J) sparse counts
    counts: np.ndarray | None = None  # (J,) of the target
    leaked: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # row numbers


def read_words(
    texts: Iterable[str] | None, atoms: Any, target: Iterable[str] | None, settings: ResolvedSelect
) -> PoolWords:
    """The n-grams of a caller's texts (or counts, `atoms`) and target, else of the settings' target.

    :raises ConfigError: texts and atoms are both given.
    :raises InputError: what is no text among them, an empty target, or one whose words the texts lack.
    """
    if texts is not None and atoms is not None:
        raise ConfigError("texts and atoms are both given; atoms are the texts' counts already")
    texts, target = _strings(texts, "texts"), _strings(target, "target")
    if target is None and settings.target:
        target = read_target(settings.target).texts
    buckets = settings.coverage.buckets
    if target is None:
        return PoolWords(count_ngrams(texts, buckets) if texts is not None else atoms)
    items = tuple(target)
    wanted = TargetTexts(("target",), items, np.zeros(len(items), np.int64))
    if texts is None:
        return PoolWords(atoms, wanted.counts(buckets if atoms is None else atoms.shape[1]))
    counts, scan = wanted.counts(buckets), Scan(wanted)
    parts, leaks, seen = [], [], np.zeros(len(scan.frequent), bool)
    for single, pair, document, count in hashed_words(texts):
        parts.append(counted(single, pair, document, count, buckets))
        leak, here = scan.look(single, document, count)
        leaks.append(leak)
        seen |= here
    scan.check(seen)
    leaked = np.flatnonzero(np.concatenate(leaks) >= 0) if leaks else np.zeros(0, np.int64)
    return PoolWords(vstack(parts, format="csr"), counts, leaked[:0] if settings.coverage.leaks else leaked)


def _strings(texts: Any, name: str) -> Iterator[Any] | None:
    """A caller's texts, each checked to be one when it is read."""
    if isinstance(texts, str):
        raise InputError(f"{name} is one text; give a list of texts")
    each = texts.to_pylist() if hasattr(texts, "to_pylist") else texts  # pyarrow's
    return None if texts is None else (_string(text, f"{name}[{number}]") for number, text in enumerate(each))


def _string(text: Any, place: str) -> Any:
    if not isinstance(text, str | bytes):
        raise InputError(f"{place} is {text!r}, which is no text; of a document without one give ''")
    return text


def _read(path: str) -> Iterable[str]:
    text = read_text_file(path, "select.target")
    if not holds_json_lines(path):
        return text.split("\n\n")
    return [_item(row, number, path) for number, row in json_objects(text, f"select.target: {path}")]


def _item(row: Mapping[str, Any], number: int, path: str) -> str:
    held = [row[name] for name in ("text", "question", "answer") if isinstance(row.get(name), str)]
    if not held:
        raise InputError(f"select.target: {path}, line {number} has neither text nor question and answer")
    return " ".join(held)
