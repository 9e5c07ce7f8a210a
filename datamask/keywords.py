"""The settings as typed keyword arguments, which an editor shows: `select(features, quality, lamb=0.5)`.

A test holds them equal to the settings of `datamask.config`, which says what each means and what it is by default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypedDict

from datamask.config import CoverageSettings, OwnFilter, Part, Quota, ScorerSettings, Statement

if TYPE_CHECKING:
    from scipy.sparse import sparray, spmatrix


class QuotaKeywords(TypedDict, total=False):
    """One of `select.quotas`."""

    column: str
    minimum: Mapping[str, float]
    maximum: Mapping[str, float]
    as_pool: float | None


class CoverageKeywords(TypedDict, total=False):
    """The settings `select.coverage`."""

    atoms: Mapping[Part, float] | None
    anchors: int
    temperature: float
    buckets: int
    curve: Literal["likelihood", "saturating"]
    document_weights: Literal["quality", "equal"]
    smoothing: float
    search: float
    leaks: bool


class SolverKeywords(TypedDict, total=False):
    """The section `select` but for its target."""

    solver: str
    algorithm: str | Mapping[str, float] | None
    select_ratio: float | None
    token_ratio: float | None
    budget_documents: int | None
    budget_tokens: int | None
    repeat: int
    lamb: float | None
    coverage: CoverageSettings | CoverageKeywords
    calibrate: bool
    scope: Literal["corpus", "shard"]
    seed: int
    device: str
    semantic_duplicates: float | None
    quotas: Sequence[Quota | QuotaKeywords]
    length_tolerance: float | None
    n_epochs: int
    n_rollout: int
    partial: float
    max_lr: float
    min_lr: float
    init: Literal["same", "quality"]
    prune: float
    block_documents: int
    gradient: Literal["surrogate", "order"]
    published: bool


class SelectKeywords(SolverKeywords, total=False):
    """The section `select`."""

    target: Sequence[str]


class ArrayKeywords(SolverKeywords, total=False):
    """What `datamask.select` takes beside its arrays."""

    texts: Iterable[str] | None
    """(N,) the documents' texts, for coverage of words."""
    atoms: sparray | spmatrix | None
    """(N, J) counts of the documents' hashed n-grams, instead of texts."""
    target: Iterable[str] | None
    """Texts to explain. The section `select` has files of such texts here."""


class CorpusKeywords(TypedDict, total=False):
    """The section `corpus`."""

    input: Sequence[str]
    columns: Mapping[str, str]
    drop: Sequence[str]
    encoding: str | None
    separator: str | None
    quotes: Literal["double", "backslash", "none"] | None
    header: bool | None
    shard_rows: int
    group_bytes: int


class EncoderKeywords(TypedDict, total=False):
    """The section `encoder`."""

    model: str
    options: Mapping[str, object]
    column: str
    revision: str | None
    dimensions: int
    max_length: int
    long_documents: Literal["first", "mean"]
    prompt: str
    dtype: Literal["auto", "float32", "bfloat16", "float16"]
    backend: Literal["torch", "onnx", "openvino"]
    batch_tokens: int
    device: str
    trust_remote_code: bool
    quality_head: str | None
    fit_documents: int
    vocabulary: int


class ScorerKeywords(TypedDict, total=False):
    """One of `quality.scorers`."""

    kind: str
    name: str
    model: str | None
    revision: str | None
    column: str | None
    label: str | None
    preparation: Literal["plain", "dclm", "ultra-fineweb"]
    tokenizer: str | None
    max_length: int | None
    weight: float
    options: Mapping[str, object]


class QualityKeywords(TypedDict, total=False):
    """The section `quality`."""

    scorers: Sequence[ScorerSettings | ScorerKeywords]
    combine: Literal["sum", "standard", "rank"]


class TopicsKeywords(TypedDict, total=False):
    """The section `topics`."""

    make: Literal["beside", "always", "off"]
    count: int
    seed: int


class OwnFilterKeywords(TypedDict, total=False):
    """One of `filter.own`."""

    use: str
    options: Mapping[str, object]
    name: str


class FilterKeywords(TypedDict, total=False):
    """The section `filter`."""

    where: str | None
    languages: Sequence[str]
    identify: Literal["needed", "always", "off"]
    min_tokens: int | None
    max_tokens: int | None
    decontaminate: Sequence[str]
    contamination: float
    exact_duplicates: bool
    own: Sequence[OwnFilter | OwnFilterKeywords | str]
    order: Literal["before", "after"]
    memory_limit: str


class DuplicatesKeywords(TypedDict, total=False):
    """The section `duplicates`."""

    jaccard: float | None
    containment: float | None
    count: bool
    against: Sequence[str]


class ReleaseKeywords(TypedDict, total=False):
    """The section `release`."""

    name: str
    license: str | None
    statements: Mapping[Statement, str]
    small_enterprise: bool
    personal: Literal["off", "flag", "replace"]
    personal_kinds: Sequence[Literal["email", "ip", "phone", "card"]]
    personal_region: str | None
    rows_per_file: int
    bytes_per_file: int
    row_group_rows: int
    repeated_rows: bool
    keep: int


class RunKeywords(TypedDict, total=False):
    """The section `run`."""

    engine: Literal["threads", "dask", "ray"]
    address: str | None
    workers: int | None
    retries: int
    retry_delay: float
    timeout: float | None
    shards_per_task: int | None
    refresh: Literal["solve", "prices"]
    allow_failed_shards: bool
    allow_loss: bool
    loss: float
    room: Literal["refuse", "off"]
    quarantine: float
    gpus: int


class SectionKeywords(TypedDict, total=False):
    """All sections, as `curate` takes them."""

    corpus: CorpusKeywords
    encoder: EncoderKeywords
    quality: QualityKeywords
    topics: TopicsKeywords
    select: SelectKeywords
    filter: FilterKeywords
    duplicates: DuplicatesKeywords
    release: ReleaseKeywords
    run: RunKeywords
