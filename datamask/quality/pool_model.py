"""The pool that documents are measured against: fitted on a sample of the corpus once, saved, and kept by refreshes.

model = fit_pool_model(texts, languages)
measured, group = measure(BatchWords(texts), languages, model.pool)
score_terms(measured, group, model.usual)
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from datamask import storage
from datamask.errors import ModelError
from datamask.quality import language_models as languages
from datamask.quality import terms
from datamask.quality import word_counts as ngrams
from datamask.quality.documents import BATCH
from datamask.quality.language_models import Languages
from datamask.quality.measures import PLAIN, MeasuredPool, measure, pool_free_measures
from datamask.quality.spellings import Spellings
from datamask.quality.terms import UsualTerms
from datamask.quality.word_counts import CountTable, NgramCounts
from datamask.text.batch_words import BatchWords
from datamask.text.utf8 import blocks
from datamask.text.word_tables import tables

DOCUMENTS = 10_000  # of the sample: more, and the most frequent languages have fewer of theirs
STATED = 1000  # documents of a language at most, or of a script where none is stated
LATIN = ("", "LATIN")  # the group of a sample that holds many languages: it has MANY times as many, and fills it up
MANY = 4
BEGINNING = 200  # characters that tell a text's script
CHARACTERS = 6000  # of a document, its first


@dataclass(frozen=True)
class PoolModel:
    """All that the content score knows of a corpus."""

    pool: MeasuredPool
    usual: UsualTerms


def batches(texts: Sequence[str], given: Sequence[str | None]) -> Iterator[tuple[BatchWords, Sequence[str | None]]]:
    """Documents as words, a block at a time, with their stated languages."""
    first = 0
    for block in blocks(texts, BATCH):
        yield BatchWords(block), given[first : first + len(block)]
        first += len(block)


def measured(texts: Sequence[str]) -> np.ndarray:
    """(n, len(PLAIN)) float64: what is measured of texts without a pool; NaN where there is nothing to measure."""
    parts = [np.zeros((0, len(PLAIN)))]
    for words, _ in batches(texts, [None] * len(texts)):
        found = pool_free_measures(words)
        parts.append(np.stack([found[name] for name in PLAIN], axis=1))
    return np.concatenate(parts)


def fit_pool_model(texts: Sequence[str], given: Sequence[str | None]) -> PoolModel:
    """Of a sample's texts and the languages they are said to be in."""
    beginnings = [text[:CHARACTERS] for text in texts]
    laid = list(batches(beginnings, given))
    words = [one for one, _ in laid]
    code = np.concatenate([np.nan_to_num(pool_free_measures(one)["code"]) for one in words])
    models = languages.fit_language_models(words, beginnings, given, code)
    ends = np.cumsum([len(one) for one in words])[:-1]
    groups = [models.groups(*one, part) for one, part in zip(laid, np.split(code, ends), strict=True)]
    spellings = Spellings.of(zip(words, groups, strict=True))
    pool = MeasuredPool(ngrams.count_ngrams_by_half(words), models, spellings)
    found = [measure(one, names, pool) for one, names in laid]
    measured, group = (np.concatenate([part[place] for part in found]) for place in (0, 1))
    return PoolModel(pool, terms.fit_usual(measured, group, pool.languages.names))


def sample(rows: Iterable[tuple[str, str | None]]) -> tuple[list[str], list[str | None]]:
    """The texts with the least hashes, within each language, and their languages; whatever the order of the rows.

    At most STATED of a language; where that comes to more than DOCUMENTS, fewer, the same number for each. Texts that
    state none are drawn by their script: in a corpus without languages a few pages in another script are many enough.
    """
    held: dict[tuple[str, str], list[tuple[int, str]]] = {LATIN: []}
    cap, number, latin = STATED, 0, held[LATIN]
    for text, language in rows:
        heap = held.setdefault(_drawn_with(text, language), [])
        entry = (
            -int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big"),
            text[:CHARACTERS],
        )
        if len(heap) < (DOCUMENTS if heap is latin else cap):
            heapq.heappush(heap, entry)
            number += heap is not latin
        elif entry > heap[0]:
            heapq.heapreplace(heap, entry)
        while number + min(len(latin), MANY * cap) > DOCUMENTS:
            cap = cap * 9 // 10
            for full in held.values():
                while full is not latin and len(full) > cap:
                    heapq.heappop(full)
                    number -= 1
    held[LATIN] = heapq.nlargest(DOCUMENTS - number, latin)
    chosen = sorted((-rank, language, text) for (language, _), heap in held.items() for rank, text in heap)
    return [text for _, _, text in chosen], [language or None for _, language, _ in chosen]


def _drawn_with(text: str, language: str | None) -> tuple[str, str]:
    """The language that is stated, or the script of most letters at the beginning."""
    if stated := languages.stated_language(language):
        return stated, ""
    script = tables().script[np.frombuffer(text[:BEGINNING].encode("utf-32-le", "surrogatepass"), np.uint32)]
    counts = np.bincount(script[script > 0])
    return ("", tables().scripts[counts.argmax()]) if len(counts) else LATIN


# ---------------------------------------------------------------- the file


def write_pool_model(url: str, model: PoolModel) -> None:
    """Publishes the model as one safetensors file; the same model gives the same bytes."""
    told = model.pool.languages
    tensors = {f"counts.{name}": getattr(model.pool.counts, name).slots for name in ngrams.TABLES}
    tensors |= {f"languages.{name}": getattr(told, name) for name in _LANGUAGES}
    tensors |= {f"usual.{name}": getattr(model.usual, name) for name in _USUAL}
    tensors["spellings"] = model.pool.spellings.seen
    facts = {"names": told.names, "languages": told.languages, "signals": terms.SIGNALS}
    tensors["facts"] = np.frombuffer(json.dumps(facts, sort_keys=True).encode(), dtype=np.uint8)
    storage.write_content(url, save({name: np.ascontiguousarray(tensors[name]) for name in sorted(tensors)}))


_LANGUAGES = ("keys", "likelihood", "frequent", "words", "usual")
_USUAL = ("median", "spread", "ranks")


def read_pool_model(url: str) -> PoolModel:
    """The inverse of `write_pool_model`.

    :raises ModelError: the file is damaged or of another version.
    :raises MissingFileError: it is not there.
    """
    data = storage.read_content(url)
    try:
        tensors: Mapping[str, np.ndarray] = load(data)
        facts = json.loads(tensors["facts"].tobytes())
        if facts["signals"] != list(terms.SIGNALS):
            raise ValueError("it holds other measures than this version's")
        counts = NgramCounts(**{name: CountTable(tensors[f"counts.{name}"]) for name in ngrams.TABLES})
        told = Languages(
            tuple(facts["names"]), facts["languages"], *(tensors[f"languages.{name}"] for name in _LANGUAGES)
        )
        usual = UsualTerms(*(tensors[f"usual.{name}"] for name in _USUAL))
        spellings = Spellings(tensors["spellings"])
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise ModelError(f"{url}: damaged ({error}); remove it and run again, it is fitted anew") from error
    return PoolModel(MeasuredPool(counts, told, spellings), usual)
