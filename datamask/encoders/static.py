"""The embedded default encoder: fitted on the corpus itself in well under a minute, no download, no GPU.

A byte-level BPE tokenizer and, per token, a vector: latent semantic analysis (Deerwester et al. 1990) of the
TF-IDF weighted documents by randomised SVD (Halko, Martinsson & Tropp 2011). A document's vector is the mean of
its tokens' vectors, of unit length, which is LSA's folding-in of the document. It is saved as an ordinary
sentence-transformers folder (StaticEmbedding + Normalize), so `SentenceTransformer(folder)` loads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy.sparse
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
from sklearn.utils.extmath import randomized_svd
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from datamask.encoders.tokens import DocumentTokenizer

IDF_POWER = 1.25  # rare tokens say more about topic; 1 is the usual idf (compared in benchmarks/LOG.md)
POWER_ITERATIONS = 2
OVERSAMPLES = 32
TRAIN_CHARACTERS = 3000  # of a document, for the tokenizer: long documents would otherwise fill the vocabulary


def fit_tokenizer(texts: Sequence[str], vocabulary: int) -> Tokenizer:
    """A byte-level BPE tokenizer over lower-cased words.

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
    tokenizer.train_from_iterator((text[:TRAIN_CHARACTERS] for text in texts), trainer, length=len(texts))
    return tokenizer


def fit_vectors(
    texts: Sequence[str], tokenizer: DocumentTokenizer, dimensions: int, max_length: int, seed: int
) -> np.ndarray:
    """float32 [vocabulary, dimensions]: the tokens' vectors.

    A mean of token vectors is linear in a token's frequency f, and LSA is much better with 1 + ln f. So each token
    carries, beside its idf, the least-squares slope of 1 + ln f on f over the sample (a small one for tokens that
    come in bursts), and the mean document is subtracted from every vector, hence from every mean of vectors:
    benchmarks/LOG.md has both steps measured.

    With fewer documents than dimensions the rest are random projections (Johnson & Lindenstrauss 1984) of the
    weights, and so are the vectors of tokens the sample lacks: no document is left without a direction of its own.
    """
    counts = count_matrix(tokenizer, texts, max_length)
    documents, vocabulary = counts.shape
    token, tf = counts.indices, counts.data
    frequency = np.bincount(token, minlength=vocabulary)
    idf = (np.log((1 + documents) / (1 + frequency)) + 1) ** IDF_POWER
    damped = 1 + np.log(tf)
    slope = np.bincount(token, damped * tf, vocabulary) / np.maximum(np.bincount(token, tf * tf, vocabulary), 1)
    weight = idf * np.where(frequency > 0, slope, 1)

    sublinear = _with_values(counts, damped * idf[token])
    lengths = np.sqrt(np.asarray((sublinear * sublinear).sum(axis=1)).ravel())
    sublinear = _scale_rows(sublinear, 1 / np.maximum(lengths, 1e-9))
    generator = np.random.default_rng(seed)
    vectors = generator.standard_normal((vocabulary, dimensions), dtype=np.float32) / np.float32(np.sqrt(dimensions))
    seen = np.flatnonzero(frequency)
    rank = min(dimensions, documents, len(seen))
    if rank:
        _, _, basis = randomized_svd(
            sublinear[:, seen], rank, n_oversamples=OVERSAMPLES, n_iter=POWER_ITERATIONS, random_state=seed
        )
        vectors[seen, :rank] = basis.T
        vectors[frequency == 0] *= np.float32(np.sqrt(rank / len(seen)))  # as long as the others on average
    vectors *= weight[:, None].astype(np.float32)

    if documents > 1:
        tokens = np.asarray(counts.sum(axis=1)).ravel()
        means = _scale_rows(counts, 1 / np.maximum(tokens, 1))
        share = np.asarray(means.mean(axis=0)).ravel().astype(np.float32)
        vectors -= share @ vectors
    return np.ascontiguousarray(vectors, dtype=np.float32)


def save(folder: Path, tokenizer: Tokenizer, vectors: np.ndarray) -> None:
    """Writes the sentence-transformers folder: the same tokenizer and vectors give the same bytes."""
    embedding = StaticEmbedding(tokenizer, embedding_weights=vectors)
    SentenceTransformer(modules=[embedding, Normalize()], device="cpu").save(str(folder), create_model_card=False)


def count_matrix(tokenizer: DocumentTokenizer, texts: Sequence[str], max_length: int) -> scipy.sparse.csr_array:
    """float32 [texts, vocabulary]: how often each token stands in the first `max_length` tokens of each text."""
    ids, lengths = tokenizer.first(texts, max_length)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    matrix = scipy.sparse.csr_array(
        (np.ones(len(ids), np.float32), ids, ends), shape=(len(texts), tokenizer.vocabulary)
    )
    matrix.sum_duplicates()
    return matrix


def _with_values(matrix: scipy.sparse.csr_array, values: np.ndarray) -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array((values.astype(np.float32), matrix.indices, matrix.indptr), shape=matrix.shape)


def _scale_rows(matrix: scipy.sparse.csr_array, factors: np.ndarray) -> scipy.sparse.csr_array:
    return _with_values(matrix, matrix.data * np.repeat(factors, np.diff(matrix.indptr)))
