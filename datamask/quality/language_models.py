"""Which of the pool's languages a document is in, by the words that are in every text of it.

A document belongs to the language that its corpus says, if the sample has enough of it; else to the one its words are
most likely in; else to its script. Languages that nobody names are found by their letters. Source code is a group of
its own, whatever it is said to be in. Scores are compared within these groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from datamask.maps import places_of
from datamask.text.batch_words import BatchWords
from datamask.text.language_groups import language_groups
from datamask.text.letters import unique_sorted
from datamask.text.word_tables import tables

LEAST = 20  # documents of the sample that make a group
# Of groups by letters, which are languages. Half of the documents have more than this share of words that stand in
# another of the group: .48 and more in 19 languages, .2 where each document is in another language.
TOGETHER = 1 / 3
# Two are one where each holds at least this part of the other's frequent words, of what that holds itself. Forms of
# English have .56 and more, laws and pages in German .5, other languages .32 at most.
SAME = 0.45
COMPARED = 100  # documents of a group that this is told by
FREQUENT = 100  # words that stand in most documents: its function words, mostly
PROFILE = 400  # words that tell it from others
# A document is in its likeliest language where it has at least this part of the usual frequent words: one that states
# none, for a menu or a list has few of them; and one that states another, which may be the same by another name (.74
# and more), or a language that is like it (.58 at most, but for one of 215).
TRUST, SURE = 0.2, 0.65
BACKGROUND = 0.05  # of a word's share in a language, what comes from all of them
LOOK = 400  # a document's first words in no figures, which its language is told from
FEWEST = 20  # a document with fewer is as if it had so many, the others in no language
NO_LANGUAGE = ("und", "mul", "mis", "zxx", "un", "unknown")  # said by ISO 639-2 and CLD2 of what is in none they know
CODE = "code"
_CODE = 0.5  # probability from which a document is source code
OTHER = "other "  # begins the names of groups of scripts
ANY = OTHER + "scripts"  # of those that have few documents
_BITS = 18


@dataclass(frozen=True)
class Languages:
    """The groups of a pool, `names`: languages, then code, then scripts for what is in none of them."""

    names: tuple[str, ...]
    languages: int  # so many of the names are languages
    keys: np.ndarray  # (v,) uint64, hashes of words; the last is no word
    likelihood: np.ndarray  # (v, languages) float32: ln of a word's share
    frequent: np.ndarray  # (v, names) bool: of the words that most documents of the group hold
    words: np.ndarray  # (names,) float64: in a half of the sample
    usual: np.ndarray  # (names,) float64: median share of frequent words in its documents

    @cached_property
    def place(self) -> np.ndarray:
        """(2^_BITS,) int32 rows of `keys` by the first bits of a hash."""
        place = np.full(1 << _BITS, len(self.keys) - 1, dtype=np.int32)
        place[_slot(self.keys[:-1])] = np.arange(len(self.keys) - 1)
        return place

    def rows(self, hashes: np.ndarray) -> np.ndarray:
        """(n,) rows of `keys`; its last for a word that is not there."""
        row = self.place[_slot(hashes)]
        return np.where(self.keys[row] == hashes, row, np.int32(len(self.keys) - 1))

    def groups(self, words: BatchWords, given: Sequence[str | None], code: np.ndarray) -> np.ndarray:
        """(documents,) int64, places in `names`.

        :param given: the corpus's own statement of each document's language
        :param code: (documents,) probability that each is source code
        """
        known = {name: place for place, name in enumerate(self.names[: self.languages])}
        found = np.array([known.get(name, -1) if name else -1 for name in given], dtype=np.int64)
        unknown = np.flatnonzero(found < 0)
        another = np.array([bool(stated_language(name)) for name in given], dtype=bool)
        found[unknown] = self.by_words(words, unknown, np.where(another, SURE, TRUST)[unknown])
        found[code > _CODE] = self.languages
        return found

    def by_words(self, words: BatchWords, documents: np.ndarray, part: np.ndarray | float = TRUST) -> np.ndarray:
        """(n,) int64, places in `names` by the words alone, of some of the documents: (n,) ascending numbers.

        :param part: (n,) of the usual frequent words, that a document must have at least to be in a language; or of all
        """
        place, owner = _first_words(words, documents)
        told, share = self._told(words.hashes[place], owner, len(documents))
        likely = (told >= 0) & (share >= self.usual[told] * part)
        return np.where(likely, told, self._of_scripts[words.main_script[documents]])

    @cached_property
    def _of_scripts(self) -> np.ndarray:
        """(scripts,) places in `names` of what is in none of the languages, by `WordTables.scripts`."""
        places = {name: place for place, name in enumerate(self.names) if place > self.languages}
        return np.array([places.get(OTHER + script, len(self.names) - 1) for script in tables().scripts])

    def _told(self, hashes: np.ndarray, owner: np.ndarray, documents: int) -> tuple[np.ndarray, np.ndarray]:
        """(documents,) the likeliest language, −1 where no word tells, and the share of its frequent words, by words of
        some documents: their hashes, and whose each is, ascending."""
        told, total = np.full(documents, -1), np.bincount(owner, minlength=documents)
        row = self.rows(hashes)
        seen = row < len(self.keys) - 1
        row, owner = row[seen], owner[seen]
        if not self.languages or not len(row):
            return told, np.zeros(documents)
        begins = np.flatnonzero(np.append(True, np.diff(owner) > 0))
        told[owner[begins]] = np.add.reduceat(self.likelihood[row], begins, axis=0).argmax(axis=1)
        hits = np.bincount(owner, weights=self.frequent[row, told[owner]], minlength=documents)
        return told, hits / np.maximum(total, FEWEST)


def _slot(hashes: np.ndarray) -> np.ndarray:
    return (hashes >> np.uint64(64 - _BITS)).astype(np.int64)


def _first_words(words: BatchWords, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places of the first words in no figures of some documents, (n,) ascending numbers; and of which each is, < n."""
    owners = np.full(len(words), -1)
    owners[documents] = np.arange(len(documents))
    owner = owners[words.document]
    place = np.flatnonzero(words.is_word & ~words.figures & (owner >= 0))
    owner = owner[place]
    begins = np.searchsorted(owner, np.arange(len(documents)))
    kept = np.arange(len(place)) - begins[owner] < LOOK
    return place[kept], owner[kept]


def stated_language(name: str | None) -> str:
    """The language that a corpus states of a document; "" where it states none."""
    return name if name and name.lower() not in NO_LANGUAGE else ""


def fit_language_models(
    batches: Sequence[BatchWords], texts: Sequence[str], given: Sequence[str | None], code: np.ndarray
) -> Languages:
    """The groups of a sample. What is in no stated language is parted by its letters (`language_groups`) into languages
    without a name.

    :param texts: of the batches' documents, one batch after the other, as all that follows
    :param given: the corpus's own statement of each document's language
    :param code: (documents,) probability that each is source code
    """
    held = [_words_of(words, document) for words in batches for document in range(len(words))]
    ends = np.cumsum([len(words) for words in batches]).tolist()
    parts = [slice(end - len(words), end) for words, end in zip(batches, ends, strict=True)]

    def strangers(languages: dict[str, list[np.ndarray]]) -> np.ndarray:
        """(n,) numbers of the documents that are in none of the languages, nor code."""
        models = _of(languages, {CODE: [], ANY: []})
        found = [models.groups(words, given[part], code[part]) for words, part in zip(batches, parts, strict=True)]
        return np.flatnonzero(np.concatenate(found) > len(languages))

    stated = np.where(code > _CODE, "", [stated_language(name) for name in given]).tolist()
    languages = _enough(_by_name(held, stated))
    left = strangers(languages)
    if unnamed := _unnamed([texts[document] for document in left], [held[document] for document in left]):
        languages |= unnamed
        left = strangers(languages)
    number = np.concatenate([words.main_script for words in batches])
    names = [OTHER + tables().scripts[script] for script in number[left]]
    others = _by_name([held[document] for document in left], names)
    scripts = _enough(others)
    rest = [one for name in others if name not in scripts for one in others[name]]
    programs = [held[document] for document in np.flatnonzero(code > _CODE)]
    return _of(languages, {CODE: programs, **scripts, ANY: rest})


def _by_name(documents: Sequence[np.ndarray], names: Sequence[str]) -> dict[str, list[np.ndarray]]:
    """The documents of each name but "", the names in their order."""
    found: dict[str, list[np.ndarray]] = {name: [] for name in sorted({*names})}
    for document, name in zip(documents, names, strict=True):
        found[name].append(document)
    return {name: documents for name, documents in found.items() if name}


class _Unnamed(NamedTuple):
    """A language without a name: its documents, and of some of these the frequent words and their usual share."""

    documents: list[np.ndarray]
    frequent: np.ndarray
    usual: float

    def holds(self, other: _Unnamed) -> bool:
        """Whether the other's frequent words come in these documents nearly as often as in its own."""
        return _usual(self.documents[:COMPARED], other.frequent) > SAME * other.usual


def _unnamed(texts: Sequence[str], documents: Sequence[np.ndarray]) -> dict[str, list[np.ndarray]]:
    """The languages of documents, texts and their words, by their letters; the largest group of these first."""
    found: list[_Unnamed] = []
    letters = language_groups(texts, 0)[0] if texts else np.zeros(0, np.int64)
    for group in np.argsort(-np.bincount(letters), kind="stable"):
        mine = [documents[place] for place in np.flatnonzero(letters == group).tolist()]
        some = mine[:COMPARED]
        words, number = _count_documents(some)
        if len(mine) < LEAST or _usual(some, words[number > 1]) < TOGETHER:
            continue
        own = _Unnamed(mine, words[:FREQUENT], _usual(some, words[:FREQUENT]))
        same = next((other for other in found if own.holds(other) and other.holds(own)), None)
        if same:
            same.documents.extend(mine)
        else:
            found.append(own)
    return {f"unnamed {number}": language.documents for number, language in enumerate(found)}


def _enough(groups: dict[str, list[np.ndarray]]) -> dict[str, list[np.ndarray]]:
    return {name: documents for name, documents in groups.items() if len(documents) >= LEAST}


def _words_of(words: BatchWords, document: int) -> np.ndarray:
    mine = slice(words.first[document], words.first[document + 1])
    return words.hashes[mine][words.is_word[mine]]


def _of(texts: dict[str, list[np.ndarray]], others: dict[str, list[np.ndarray]]) -> Languages:
    """The groups of languages and of what is in none, of the words of the documents of each."""
    everything, languages = {**texts, **others}, len(texts)
    ranked = [_count_documents(hashes)[0] for hashes in everything.values()]
    joined = [np.concatenate([np.zeros(0, np.uint64), *hashes]) for hashes in everything.values()]
    vocabulary = np.unique(np.concatenate([keys[:PROFILE] for keys in ranked]))
    slots = _slot(vocabulary)
    vocabulary = vocabulary[np.diff(slots, prepend=-1) != 0]  # sorted, so equal slots are neighbours
    likelihood = np.zeros((len(vocabulary) + 1, languages), dtype=np.float32)
    shares = np.zeros((len(vocabulary), languages))
    frequent = np.zeros((len(vocabulary) + 1, len(everything)), dtype=bool)
    for place, (keys, words) in enumerate(zip(ranked, joined, strict=True)):
        frequent[:-1, place] = np.isin(vocabulary, keys[:FREQUENT])
        if place < languages:
            row = places_of(words, vocabulary)
            shares[:, place] = np.bincount(row[row >= 0], minlength=len(vocabulary)) / max(1, len(words))
    # a word that a language lacks says the same of each, however few documents it has
    every = shares.sum(axis=1, keepdims=True) / max(1, languages) + 1e-9
    likelihood[:-1] = np.log((1 - BACKGROUND) * shares + BACKGROUND * every)
    usual = [_usual(hashes, vocabulary[frequent[:-1, place]]) for place, hashes in enumerate(everything.values())]
    return Languages(
        tuple(everything),
        languages,
        np.append(vocabulary, np.uint64(0)),
        likelihood,
        frequent,
        np.array([len(words) / 2 for words in joined]),
        np.array(usual),
    )


def _count_documents(hashes: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(v,) the words of documents, and how many documents hold each; those that most hold first."""
    keys, number = np.unique(np.concatenate([np.zeros(0, np.uint64), *map(unique_sorted, hashes)]), return_counts=True)
    order = np.argsort(-number, kind="stable")
    return keys[order], number[order]


def _usual(hashes: Sequence[np.ndarray], frequent: np.ndarray) -> float:
    """The median over the documents of the share of their first words that are frequent."""
    if not hashes:
        return 0.0
    looked = [one[:LOOK] for one in hashes]
    document = np.repeat(np.arange(len(looked)), [len(one) for one in looked])
    found = np.isin(np.concatenate(looked), frequent)
    sizes = np.bincount(document, minlength=len(looked))
    return float(np.median(np.bincount(document, found, len(looked)) / np.maximum(sizes, 1)))
