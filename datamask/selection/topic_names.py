"""Names of topics: the words that tell each from the others, in whatever language its documents are.

    name_topics(["The court heard …", "Gene expression in …"], np.array([0, 1]), 2)     # ["court heard", "gene …"]

A word is worth the z of its log-odds beside all other topics, with all documents' words as prior (Monroe, Colaresi &
Quinn, Political Analysis 16, 2008), times a power of its residual idf within the topic: by how much fewer documents
hold it than would by chance, in bits (Church & Gale, VLC 1995). That is near 0 for the small words of any language,
which else name the topics of small ones. In scripts without spaces, pairs of neighbouring characters are words.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence

import numpy as np

from datamask.text.ngrams import word_bounds

CHARACTERS = 2000  # of a document that are read, from its beginning
WORDS = 3  # of a name
FEWEST = 3  # documents of a topic that hold a word of its name
PRIOR = 500.0  # words that the prior counts for
COMMON = 0.2  # share of the other topics' documents above which a word tells nothing
SHARPNESS = 0.6  # power of the residual idf: 1 prefers rare names, 0.5 small words; chosen by reading names
LEAST = 0.02  # bits of residual idf that every word counts for
ALIKE = 4  # letters from the start by which two words count as one: patient, patients


def name_topics(texts: Sequence[str], topic: np.ndarray, count: int) -> list[str]:
    """A name of each of `count` topics, no two alike. topic: (texts,) the topic of each text."""
    held: list[Counter[str]] = [Counter() for _ in range(count)]  # documents that hold a word
    written: list[Counter[str]] = [Counter() for _ in range(count)]  # how often it stands in them
    for text, number in zip(texts, topic.tolist(), strict=True):
        counts = Counter(naming_words(text))
        held[number].update(counts.keys())
        written[number].update(counts)
    whole: Counter[str] = Counter()
    for own in held:
        whole.update(own)
    names: list[str] = []
    for number in range(count):
        documents = int((topic == number).sum())
        most = COMMON * (len(texts) - documents)
        own = Counter({word: holders for word, holders in held[number].items() if whole[word] - holders <= most})
        words = _telling(own, written[number], whole, documents)
        length = WORDS
        while (name := " ".join(words[:length])) in names and length < len(words):
            length += 1
        names.append(name if name and name not in names else f"{name} {number}".strip())
    return names


def naming_words(text: str) -> list[str]:
    """The words of a text of two characters or more, and pairs of those that are words alone, in lower case."""
    text = unicodedata.normalize("NFKC", text).lower()
    starts, ends = word_bounds(text)
    longer = ends - starts > 1
    paired = (ends[:-1] == starts[1:]) & ~longer[:-1] & ~longer[1:]
    firsts = np.concatenate([starts[longer], starts[:-1][paired]]).tolist()
    lasts = np.concatenate([ends[longer], ends[1:][paired]]).tolist()
    return [text[first:last] for first, last in zip(firsts, lasts, strict=True)]


def can_name(word: str) -> bool:
    """Whether a name may have this word: no digits, and three letters where they are Latin without accents."""
    return len(word) > 1 + word.isascii() and not any(map(str.isdigit, word))


def _telling(held: Counter[str], written: Counter[str], whole: Counter[str], documents: int) -> list[str]:
    """The words that a topic's documents hold more than others, the most telling first; no two of one beginning."""
    fewest = min(FEWEST, documents)
    words = sorted(word for word, holders in held.items() if holders >= fewest and can_name(word))
    here = np.array([held[word] for word in words], float)
    other = np.array([whole[word] for word in words], float) - here
    often = np.array([written[word] for word in words], float)
    total, rest = held.total(), whole.total() - held.total()
    prior = PRIOR * (here + other) / max(whole.total(), 1)
    odds = np.log((here + prior) / (total + PRIOR - here - prior)) - np.log(
        (other + prior) / (rest + PRIOR - other - prior)
    )
    z = odds / np.sqrt(1 / (here + prior) + 1 / (other + prior))
    fewer = np.log2(documents / here) + np.log2(-np.expm1(-often / documents))
    worth = z * (fewer.clip(0) + LEAST) ** SHARPNESS
    found: list[str] = []
    for place in np.argsort(-worth, kind="stable"):
        if not any(words[place][:ALIKE] == word[:ALIKE] for word in found):
            found.append(words[place])
        if len(found) == 4 * WORDS:
            break
    return found
