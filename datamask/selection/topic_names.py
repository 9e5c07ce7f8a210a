"""Names of topics: the words that tell each from the others, in whatever language its documents are.

    name_topics(["The court heard …", "Gene expression in …"], np.array([0, 1]), 2)     # ["court heard", "gene …"]

A word is worth the z of its log-odds beside all other topics, with all documents' words as prior (Monroe, Colaresi &
Quinn, Political Analysis 16, 2008), times a power of its residual idf: by how much fewer documents of its language
hold it than would by chance, in bits (Church & Gale, VLC 1995). That is near 0 for the small words of any language,
also where a topic has the whole language. Languages are told by letters (`language_groups`). In scripts without spaces,
pairs of neighbouring characters are words.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array

from datamask.encoders.language_groups import language_groups
from datamask.text.ngrams import word_bounds

CHARACTERS = 2000  # of a document that are read, from its beginning
WORDS = 3  # of a name
FEWEST = 3  # documents of a topic that hold a word of its name
PRIOR = 500.0  # words that the prior counts for
COMMON = 0.06  # share of the other topics' documents above which a word tells nothing
SHARPNESS = 1.3  # power of the residual idf: 2 prefers rare names, 0.5 small words; chosen by reading names
LEAST = 0.01  # bits of residual idf that every word counts for
ALIKE = 4  # letters from the start by which two words count as one: patient, patients
MARKUP = re.compile(r"(?<!\S)\S*[<>{}/\\=_@&|$^]\S*")  # what holds a sign of markup, an address, a formula or code


def name_topics(texts: Sequence[str], topic: np.ndarray, count: int) -> list[str]:
    """A name of each of `count` topics, no two alike. topic: (texts,) the topic of each text."""
    words, worth = _worth(texts, topic, count)
    names: list[str] = []
    for number in range(count):
        telling: list[str] = []
        for place in np.argsort(-worth[number], kind="stable"):
            if np.isneginf(worth[number, place]) or len(telling) == 4 * WORDS:
                break
            if not any(words[place][:ALIKE] == word[:ALIKE] for word in telling):
                telling.append(words[place])
        length = WORDS
        while (name := " ".join(telling[:length])) in names and length < len(telling):
            length += 1
        names.append(name if name and name not in names else f"{name} {number}".strip())
    return names


def naming_words(text: str) -> list[str]:
    """The words of a text of two characters or more, and pairs of those that are words alone, in lower case."""
    text = MARKUP.sub(" ", unicodedata.normalize("NFKC", text).lower())
    starts, ends = word_bounds(text)
    longer = ends - starts > 1
    paired = (ends[:-1] == starts[1:]) & ~longer[:-1] & ~longer[1:]
    firsts = np.concatenate([starts[longer], starts[:-1][paired]]).tolist()
    lasts = np.concatenate([ends[longer], ends[1:][paired]]).tolist()
    return [text[first:last] for first, last in zip(firsts, lasts, strict=True)]


def can_name(word: str) -> bool:
    """Whether a name may have this word: no digits, and three letters where they are Latin without accents."""
    return len(word) > 1 + word.isascii() and not any(map(str.isdigit, word))


def _worth(texts: Sequence[str], topic: np.ndarray, count: int) -> tuple[list[str], np.ndarray]:
    """The words that may name a topic, sorted, and what each is worth to it, (count, words); -inf: it may not."""
    counts = [Counter(naming_words(text)) for text in texts]
    holders = Counter(word for own in counts for word in own)
    documents = np.bincount(topic, minlength=count)[:, None]
    fewest = np.clip(documents, 1, FEWEST)
    words = sorted(word for word, held in holders.items() if held >= fewest.min() and can_name(word))
    if not words:
        return [], np.empty((count, 0))
    place = {word: column for column, word in enumerate(words)}
    cells = ((row, word, often) for row, own in enumerate(counts) for word, often in own.items())
    row, column, often = np.array([(row, place[word], often) for row, word, often in cells if word in place]).T

    languages = language_groups(texts, 0)[1]
    pair, of_pair = np.unique(languages[row] * len(words) + column, return_inverse=True)  # of a language and a word
    of_language, held = np.bincount(languages)[pair // len(words)], np.bincount(of_pair)
    rare = np.log2(of_language / held) + np.log2(-np.expm1(-np.bincount(of_pair, often) / of_language))

    def summed(values: np.ndarray) -> np.ndarray:
        """(count, words): the sums of the topics' documents."""
        return csr_array((values, (topic[row], column)), (count, len(words))).toarray()

    here = summed(np.ones(len(row)))
    bits = summed(rare.clip(0)[of_pair]) / np.maximum(here, 1)
    other, total = here.sum(0) - here, here.sum(1, keepdims=True)
    rest, prior = here.sum() - total, PRIOR * here.sum(0) / here.sum()
    odds = np.log((here + prior) / (total + PRIOR - here - prior)) - np.log(
        (other + prior) / (rest + PRIOR - other - prior)
    )
    z = odds / np.sqrt(1 / (here + prior) + 1 / (other + prior))
    may = (here >= fewest) & (other <= COMMON * (len(texts) - documents))
    return words, np.where(may, z * (bits + LEAST) ** SHARPNESS, -np.inf)
