"""Which of two copies of a text has words put in the place of others: what the pool's counts say where they differ.

    counts = CopyCounts(model)
    counts.altered([(one, other)])      # [12.3]: where they differ, the words of `one` are likelier by so many nats

A copy that the sample holds has been counted itself: its own counts say nothing about it and are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from datamask.quality.batch_words import BatchWords
from datamask.quality.character_ngrams import HALVES, PAIR, halves
from datamask.quality.copy_loops import CopyTexts, altered_of_pairs, held_in
from datamask.quality.inner_loops import neighbours
from datamask.quality.measures import word_order
from datamask.quality.pool_model import CHARACTERS, PoolModel

LEAST = 100_000.0  # words of a language: where its group has fewer, most that hold its words are in other groups


@dataclass(frozen=True, eq=False)
class CopyCounts:
    """The counts of the pool by which copies of one text are told apart."""

    model: PoolModel

    def natural(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[float, float]]:
        """Of each pair, copies of one text, how naturally the words of either follow one another, by the counts of both
        halves; nan: unknown.

        The texts' own counts are among them, so this is for telling copies from other texts, not for choosing one.
        """
        words = BatchWords([text for pair in pairs for text in pair])
        group = np.repeat(self.model.pool.languages.by_words(words, np.arange(0, len(words), 2)), 2)
        found = word_order(words, self.model.pool, group).tolist()
        return list(zip(found[::2], found[1::2], strict=True))

    def altered(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Of each pair, a text and a copy of it, by how many nats the words that the one has of its own are likelier
        than those of the other: after and before their neighbours by the corpus's counts, and in this text by what the
        rest of it says. 0: nothing is known.
        """
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        number = {text: place for place, text in enumerate(texts)}
        one, other = (np.array([number[pair[side]] for pair in pairs], np.int64) for side in (0, 1))
        words = BatchWords(texts)
        first, place = np.unique(one, return_inverse=True)
        group = self.model.pool.languages.by_words(words, first)[place]
        size = np.maximum(HALVES * self.model.pool.languages.words[group], LEAST)
        counts, found = self.model.pool.counts, np.empty(len(pairs))
        tables = (counts.words, counts.tails, counts.heads, counts.pairs, counts.joints)
        by_word, by_joint = neighbours(words.hashes, words.hashes, PAIR), neighbours(words.tails, words.heads, PAIR)
        tokens = np.stack([words.hashes, words.tails, words.heads, by_word, by_joint])
        counted, keys = words, by_word  # of what the sample counted: the texts' beginnings
        if max(map(len, texts), default=0) > CHARACTERS:
            counted = BatchWords([text[:CHARACTERS] for text in texts])
            keys = neighbours(counted.hashes, counted.hashes, PAIR)
        held = halves(counted)  # the half that each text was counted in
        held_in(*counts.pairs.places, keys, counted.first, held)
        of_texts, places = CopyTexts(words.first, words.is_word, held), tuple(table.places for table in tables)
        altered_of_pairs(one, other, size, of_texts, tokens, places, found)
        return found.tolist()
