"""The embedded default encoder: fitted on the corpus itself in seconds (benchmarks/RESULTS.md), no download, no GPU.

A byte-level BPE tokenizer and, per token, a vector: latent semantic analysis (Deerwester et al. 1990) of the
TF-IDF weighted documents by randomised SVD (Halko, Martinsson & Tropp 2011), every language with its share of the
vocabulary and of the variance (see `language_groups`), and what all documents of a language have in common taken down.
A document's vector is the mean of its tokens' vectors, of unit length, which is LSA's folding-in of the document. It
is saved as an ordinary sentence-transformers folder (StaticEmbedding + Normalize): `SentenceTransformer(folder)`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse
from safetensors.numpy import save_file
from threadpoolctl import threadpool_limits
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from datamask.encoders.counts import WordSample, count_tokens, scale_rows, with_values
from datamask.encoders.svd import Centred, product, right_singular
from datamask.text.language_groups import language_groups

IDF_POWER = 1.25  # rare tokens say more about topic; 1 is the usual idf (compared in benchmarks/LOG.md)
BALANCE = 0.6  # a language's share of vocabulary and variance is its size to this power (temperature 1.7)
TRAIN_BYTES = 6_000_000  # the tokenizer is trained on so many at most
TOKEN_BYTES = 170  # of words for each token of the vocabulary: more tokens of few texts tell them less well apart, and
# cost more (benchmarks/LOG.md)
LEAST_TOKENS = 5_000
REPEATED = 4  # a word of a small language counts at most so many times what it did
LOCAL = 0.5  # how much of a token's weight is its rarity within its languages
COMMON = (0.12, 0.25)  # greatest mean cosine of documents of a language, of a kind; benchmarks/LOG.md
GROUP = 5  # documents of a group whose common direction can be told
MEAN = 0.99  # of the mean document is taken off; the rest keeps a document that is the mean from having no direction
ALIKE = 0.999  # the mean cosine of documents of a group beyond which they count as all the same: they keep a direction
NOTHING = 1e-4  # of the mean square length of tokens' vectors: a token the decomposition knows nothing of
SMOOTHING = 5  # documents without a token that every group is taken to have besides


@dataclass(frozen=True)
class Counted:
    """The texts, as the vectors are fitted to them."""

    tokens: scipy.sparse.csr_array  # float32 [texts, vocabulary]: how often each stands in each text
    languages: np.ndarray  # int64 [texts], from 0
    kinds: np.ndarray  # int64 [texts], from 0


@dataclass(frozen=True)
class Fitted:
    """What a folder is made of."""

    tokenizer: Tokenizer
    vectors: np.ndarray  # float32 [vocabulary, dimensions]


def fit_static(texts: Sequence[str], vocabulary: int, dimensions: int, max_length: int, seed: int) -> Fitted:
    """The encoder of these texts: the same bytes for the same texts and seed, with any number of threads.

    :param vocabulary: greatest number of tokens; one for every TOKEN_BYTES of the texts' beginnings at most
    :param max_length: tokens of a document that will be embedded; about so many are counted
    """
    tokenizer, counted = fit_tokens(texts, vocabulary, max_length, seed)
    return Fitted(tokenizer, vectors_of(counted, dimensions, seed))


def fit_tokens(texts: Sequence[str], vocabulary: int, max_length: int, seed: int) -> tuple[Tokenizer, Counted]:
    """The first half of `fit_static`: the tokenizer, and the texts counted by it."""
    with threadpool_limits(1, "blas"):  # sums of one thread have one order
        languages, kinds = language_groups(texts, seed)
        sample = WordSample.of(texts, max_length)
        vocabulary = min(vocabulary, max(LEAST_TOKENS, int(sample.sizes.sum()) // TOKEN_BYTES))
        tokenizer = fit_tokenizer(sample, languages, vocabulary)
        return tokenizer, Counted(count_tokens(sample, tokenizer), languages, kinds)


def vectors_of(counted: Counted, dimensions: int, seed: int) -> np.ndarray:
    """The second half: float32 [vocabulary, dimensions]."""
    with threadpool_limits(1, "blas"):
        vectors = fit_vectors(counted.tokens, counted.languages, dimensions, seed)
        for groups, share in zip((counted.languages, counted.kinds), COMMON, strict=True):
            vectors = without_common(vectors, counted.tokens, groups, share)
        return vectors


# ---------------------------------------------------------------- tokenizer


def fit_tokenizer(sample: WordSample, groups: np.ndarray, vocabulary: int) -> Tokenizer:
    """A byte-level BPE tokenizer over lower-cased words, every group's words counted by its share.

    Every string has tokens and none is unknown, in any script: words are spelled in UTF-8 bytes, of which all
    256 are in the vocabulary. Runs of letters without spaces (Chinese, Thai) are cut by the merges learned.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=32,
        show_progress=False,
    )
    tokenizer.train_from_iterator(_repeated(sample, _occurrences(sample, groups)), trainer)
    return tokenizer


def _occurrences(sample: WordSample, groups: np.ndarray) -> np.ndarray:
    """int64 [words]: how often the trainer sees each word, by temperature (Conneau & Lample 2019), without chance."""
    held = np.bincount(groups, sample.sizes)
    share = held**BALANCE
    factor = np.minimum(TRAIN_BYTES * share / share.sum() / np.maximum(held, 1), REPEATED)
    factor *= min(1, TRAIN_BYTES / max((factor * held).sum(), 1))
    factor /= max(1, factor.min())  # to see every word of all languages several times teaches nothing more
    wanted = np.asarray(sample.words.T @ factor[groups])
    return np.diff(np.floor(np.cumsum(wanted)), prepend=0).astype(np.int64)


def _repeated(sample: WordSample, occurrences: np.ndarray) -> Iterator[str]:
    for first in range(0, len(occurrences), 1000):
        words = sample.distinct[first : first + 1000].to_pylist()
        times = occurrences[first : first + 1000].tolist()
        yield "".join((word + " ") * count for word, count in zip(words, times, strict=True))


# ---------------------------------------------------------------- vectors


def fit_vectors(counts: scipy.sparse.csr_array, groups: np.ndarray, dimensions: int, seed: int) -> np.ndarray:
    """float32 [vocabulary, dimensions]: the tokens' vectors.

    A mean of token vectors is linear in a token's frequency f, and LSA is much better with 1 + ln f. So each token
    carries, beside its idf, the least-squares slope of 1 + ln f on f over the sample (a small one for tokens that
    come in bursts): benchmarks/LOG.md has it measured.

    With fewer documents than dimensions the rest are random projections (Johnson & Lindenstrauss 1984) of the
    weights, and so are the vectors of tokens the sample lacks: no document is left without a direction of its own.

    :param counts: float32 [documents, vocabulary]
    :param groups: int64 [documents], from 0
    """
    vocabulary = counts.shape[1]
    token, tf = counts.indices, counts.data
    frequency = np.bincount(token, minlength=vocabulary)
    idf = _idf(counts, groups, frequency)
    damped = 1 + np.log(tf)
    slope = np.bincount(token, damped * tf, vocabulary) / np.maximum(np.bincount(token, tf * tf, vocabulary), 1)
    weight = idf * np.where(frequency > 0, slope, 1)

    seen = np.flatnonzero(frequency)
    sublinear = with_values(counts, damped * idf[token])[:, seen]
    lengths = np.sqrt(np.asarray(sublinear.multiply(sublinear).sum(axis=1)).ravel())
    part = (np.bincount(groups)[groups] / len(groups)) ** ((BALANCE - 1) / 2)
    sublinear = scale_rows(sublinear, part / np.maximum(lengths, 1e-9))

    generator = np.random.default_rng(seed)
    vectors = generator.standard_normal((vocabulary, dimensions), dtype=np.float32) / np.float32(np.sqrt(dimensions))
    told = np.where(np.bincount(groups)[groups] >= GROUP, part, 0)
    basis = right_singular(Centred(sublinear, groups, told), dimensions, generator)
    rank = basis.shape[1]
    if rank:
        squares = (basis**2).sum(axis=1)
        vectors *= np.float32(np.sqrt(squares.mean()))  # as long as the others on average
        known = squares > NOTHING * squares.mean()  # else all its documents are the same
        vectors[seen[known], :rank] = basis[known]
    vectors *= weight[:, None].astype(np.float32)
    return vectors


def _idf(counts: scipy.sparse.csr_array, groups: np.ndarray, frequency: np.ndarray) -> np.ndarray:
    """float64 [vocabulary]: the geometric mean of a token's idf over all documents and over those of its languages.

    What stands in every document of a small language says nothing there, however rare it is in the corpus. Rate: of
    the documents that hold a token, the mean over them of the share of their group's documents that hold it.
    """
    documents = len(groups)
    member = _members(groups)
    held = (member.T @ with_values(counts, np.ones_like(counts.data))).tocoo()
    rate = np.bincount(
        held.coords[1],
        held.data.astype(np.float64) ** 2 / (np.bincount(groups)[held.coords[0]] + SMOOTHING),
        counts.shape[1],
    ) / np.maximum(frequency, 1)
    within = 1 - np.log(np.clip(rate, 1 / documents, 1))
    within[frequency == 0] = 1 + np.log(documents)
    overall = np.log((1 + documents) / (1 + frequency)) + 1
    return (overall ** (1 - LOCAL) * within**LOCAL) ** IDF_POWER


def without_common(vectors: np.ndarray, counts: scipy.sparse.csr_array, groups: np.ndarray, share: float) -> np.ndarray:
    """The vectors with the mean document taken off, and with each group's mean direction made so small that two
    documents of a group have a cosine of about `share` on average at most.

    Common directions as in SIF (Arora, Liang & Ma 2017), one a language instead of one in all. The directions are made
    orthogonal with the least change (Löwdin 1950), so that what is taken from one language stays in the others; a
    linear map of token vectors is one of the means of them.
    """
    means = product(scale_rows(counts, 1 / np.maximum(np.asarray(counts.sum(axis=1)).ravel(), 1)), vectors)
    if len(means) < 2:
        return vectors
    centre = (MEAN * means.mean(axis=0, dtype=np.float64)).astype(np.float32)
    vectors = vectors - centre
    means -= centre
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-9)
    sizes = np.bincount(groups)
    largest = np.argsort(-sizes, kind="stable")[: vectors.shape[1] // 4]
    told = largest[sizes[largest] >= GROUP]
    sums = _members(groups).T @ means
    directions = (sums[told] / sizes[told, None]).astype(np.float64)
    common = (directions**2).sum(axis=1)  # the mean cosine of two documents
    told, directions = told[common > share], directions[common > share]
    common = np.minimum(common[common > share], ALIKE)
    if not len(told):
        return vectors
    left, _, right = np.linalg.svd(directions / np.sqrt(common)[:, None], full_matrices=False)
    axes = (left @ right).astype(np.float32)
    kept = np.sqrt(share / (1 - share) * (1 - common) / common).astype(np.float32)
    vectors -= ((vectors @ axes.T) * (1 - kept)) @ axes
    return vectors


def _members(groups: np.ndarray) -> scipy.sparse.csr_array:
    """float32 [documents, groups]: one where a document is of a group."""
    rows = np.arange(len(groups) + 1)
    return scipy.sparse.csr_array((np.ones(len(groups), np.float32), groups, rows))


# ---------------------------------------------------------------- folder

MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.StaticEmbedding"},
    {"idx": 1, "name": "1", "path": "1_Normalize", "type": "sentence_transformers.models.Normalize"},
]
SETTINGS: dict[str, object] = {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"}


def save_static(folder: Path, fitted: Fitted) -> None:
    """Writes the sentence-transformers folder, without loading that library: the same fit gives the same bytes."""
    save_file({"embedding.weight": fitted.vectors}, folder / "model.safetensors", {"format": "pt"})
    fitted.tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "1_Normalize").mkdir()
    (folder / "1_Normalize" / "config.json").write_text("{}\n")
    (folder / "config_sentence_transformers.json").write_text(json.dumps(SETTINGS, indent=2) + "\n")
    (folder / "modules.json").write_text(json.dumps(MODULES, indent=2) + "\n")
