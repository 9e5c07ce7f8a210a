"""Every setting, validated, in one place. Sections follow the stages; names are the published ones where there is one.

config = load_config("my.yaml", overrides=["select.lamb=0.7"])
print(to_yaml(config))          # the complete file, a comment per setting
"""

from __future__ import annotations

import io
import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from datamask import extensions
from datamask.errors import ConfigError, nearest

Solver = str  # a name of `extensions.extension_names("solver")`, or module:Class
SCORERS = ("content", "heuristic", "transformer", "fasttext", "column", "probe", "encoder", "prox")  # built in
Algorithm = str  # "pairwise" | "DiSF" | "facility", the published names, or a registered metric
PUBLISHED_NAMES = {"Pair_simi": "pairwise", "DiSF": "disf", "Facility": "facility"}
Part = Literal["embedding", "ngrams", "target"]
Share = Annotated[float, Field(ge=0, le=1)]

# Defaults that depend on other settings; `resolve` alone reads them.
COVERAGE_LAMB, TARGET_LAMB, PAPER_LAMB = 0.7, 0.3, 0.5  # docs/judge.md; arXiv 2512.24265, section 4
POOL_PARTS: dict[Part, float] = {"ngrams": 3.0, "embedding": 1.0}  # of coverage without a target: docs/judge.md
TARGET_PARTS: dict[Part, float] = {"target": 1.0}  # of coverage with one: docs/judge.md
GONE_METRICS = {"vendi": "Vendi", "logdet": "Volume"}  # classes of examples/own_metric.py
USUAL_RATIO = 0.1  # of the candidates' tokens, or of the candidates
# our row number, and why a row is no document: a corpus column of such a name is carried as chunk_id_original …
ROW_COLUMNS = ("chunk_id", "_reason", "_excerpt")
COPY_COLUMNS = ("copies", "copy_sources", "copy_dumps")  # of decisions, where copies are counted
BUDGETS = ("select_ratio", "token_ratio", "budget_documents", "budget_tokens")
MOST_SHOWN = 80  # characters of the settings of a section that a message quotes
UNSEEING = ("top-quality", "random", "semdedup")  # solvers that ignore diversity: only the report states it
COUNT_DOCUMENTS = ("policy-gradient", "greedy", "semdedup")  # built-in solvers that hold no budget in tokens


def _extension(kind: extensions.Kind, built_in: Sequence[str] = ()) -> AfterValidator:
    """Of a setting that names an extension of this kind, or what is built in."""

    def known(name: str) -> str:
        try:
            if name not in built_in:
                extensions.require(kind, name, built_in)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return name

    return AfterValidator(known)


class Section(BaseModel):
    """A section of the settings: frozen, unknown keys refused, numbers finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


S = TypeVar("S", bound=Section)


class Corpus(Section):
    """Which text, and how it is read."""

    input: list[str] = []
    """Files, folders or globs; local, s3://, gs:// or hf://; parquet, JSON lines, CSV, TSV, Arrow, Feather, .txt, WARC,
    WET; packed too (.gz, .zst, .bz2, .xz, .zip); mixed."""
    columns: dict[str, str] = {}
    """Our column name: the corpus's name for it, e.g. {text: content, url: meta.url}; common names are recognised."""
    drop: list[str] = []
    """Columns left out, e.g. ones whose type differs from file to file."""
    encoding: str | None = None
    """Of text files that tell theirs neither by a mark nor as UTF-8; null: the only likely one, which is then shown."""
    separator: str | None = Field(None, min_length=1, max_length=1)
    """Between the fields of CSV; null: comma, tab, ; or |, whichever fits."""
    quotes: Literal["double", "backslash", "none"] | None = None
    """What a quotation mark in CSV is: around fields, doubled within ("double") or behind a backslash ("backslash"), or
    a part of the text ("none"); null: what fits the file, which is then shown."""
    header: bool | None = None
    """Whether CSV has a header line; false: its columns are column1, column2, …; null: it has, or is refused."""
    shard_rows: int = Field(100_000, ge=1)
    """A parquet file with more rows is split into shards of whole row groups of about so many."""
    group_bytes: int = Field(8_000_000, ge=0)
    """Smaller files of a folder are read together as one shard until they reach this size; 0: each file a shard."""

    @field_validator("columns")
    @classmethod
    def _not_made(cls, value: dict[str, str]) -> dict[str, str]:
        if made := sorted({*ROW_COLUMNS} & {*value}):
            raise ValueError(f"{made[0]} is a column that datamask makes; call the corpus's column otherwise")
        return value


class EncoderSettings(Section):
    """How a document becomes a vector of unit length."""

    model: str = "static"
    """"static" (fitted on the corpus), a sentence-transformers name or path, "column" (its own embeddings), or an
    encoder of your own: module:Class or a registered name (docs/extending.md)."""
    options: dict[str, Any] = {}
    """What an encoder of your own is constructed with."""
    column: str = "feature_arr"
    """With model: column, the corpus's column of embeddings."""
    revision: str | None = None
    """Commit or tag of a hub model; pinned in the manifest."""
    dimensions: int = Field(768, ge=2)
    """Size of the vectors; a larger model is truncated to it, a smaller one refused."""
    max_length: int = Field(512, ge=8)
    """Tokens of a window; longer documents are cut or averaged (long_documents)."""
    long_documents: Literal["first", "mean"] = "first"
    """"first": the first window only; "mean": the mean over all windows."""
    prompt: str = ""
    """Text put before every document (E5: "passage: "); "": the model's own default."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """"auto": bfloat16 where the processor computes in it, else float32."""
    backend: Literal["torch", "onnx", "openvino"] = "torch"
    """sentence-transformers' backend."""
    batch_tokens: int = Field(16_384, ge=64)
    """Tokens of a batch, padding included."""
    device: str = "auto"
    """"auto", "cpu", "cuda", "cuda:1"."""
    trust_remote_code: bool = False
    """Run code that a hub model brings."""
    quality_head: str | None = None
    """A classifier on the same encoder (FineWeb-Edu's on arctic-embed-m): scored in the same pass."""
    fit_documents: int = Field(15_000, ge=100)
    """static: documents the tokenizer and the vectors are fitted on."""
    vocabulary: int = Field(30_000, ge=500)
    """static: size of the tokenizer's vocabulary."""


class ScorerSettings(Section):
    """One quality score."""

    kind: Annotated[str, _extension("scorer", SCORERS)] = "content"
    """content: the words beside the pool's; heuristic: published rules; transformer, fasttext, column, probe (fitted to
    labels), encoder (its own head), prox; or a scorer of your own: module:Class or a registered name."""
    name: str = Field("content", pattern=r"^[A-Za-z][A-Za-z0-9_]*$")
    """Name of the score's column; where not given, the kind's."""
    model: str | None = None
    """Name or path of the model."""
    revision: str | None = None
    """Commit or tag of a hub model."""
    column: str | None = None
    """kind column: which."""
    label: str | None = None
    """The positive label of a classifier."""
    preparation: Literal["plain", "dclm", "ultra-fineweb"] = "plain"
    """kind fasttext: how text is prepared."""
    tokenizer: str | None = None
    """preparation ultra-fineweb: name or folder of the DeepSeek-V2 tokenizer."""
    max_length: int | None = Field(None, ge=8)
    """Tokens of a document that a transformer or ProX reads; null: as published, 512 and 2000, or the model's limit."""
    weight: float = 1.0
    """Weight in quality_score."""
    options: dict[str, Any] = {}
    """What a scorer of your own is constructed with."""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, values: Any) -> Any:
        if not isinstance(values, dict) or "kind" not in values:
            return values
        own = extensions.find_extension("scorer", str(values["kind"]))
        return {"name": re.sub(r"\W", "_", own.label) if own else values["kind"], **values}

    @model_validator(mode="after")
    def _complete(self) -> ScorerSettings:
        if self.kind in ("transformer", "fasttext", "probe", "prox") and not self.model:
            raise ValueError(f"a scorer of kind {self.kind} needs model, the name or path of one")
        if self.kind == "column" and not self.column:
            raise ValueError("a scorer of kind column needs column, the name of the corpus's column of scores")
        if self.preparation == "ultra-fineweb" and not self.tokenizer:
            raise ValueError("preparation ultra-fineweb needs tokenizer, the name or folder of DeepSeek-V2's")
        if self.options and self.kind in SCORERS:
            raise ValueError(f"options are for a scorer of your own; {self.kind} has settings of its own")
        if self.name in ("chunk_id", "quality_score", "id", "token_count", "characters", "topic"):
            raise ValueError(f"a scorer cannot be named {self.name}, which is a column that datamask makes already")
        return self


class Quality(Section):
    """How good a document is on its own."""

    scorers: list[ScorerSettings] = Field([ScorerSettings()], min_length=1)
    """The scores, combined by weight into quality_score."""
    combine: Literal["sum", "standard", "rank"] = "sum"
    """Weighted sum of "sum": raw scores, "standard": z-scores, "rank": percentiles (both fitted on a sample)."""

    @model_validator(mode="after")
    def _distinct(self) -> Quality:
        names = [scorer.name for scorer in self.scorers]
        if len(set(names)) < len(names):
            raise ValueError(f"scorers need distinct names, found {names}")
        if not self.measured:
            raise ValueError("a count of copies scores no document alone: name a scorer beside it, such as content")
        return self

    @property
    def measured(self) -> list[ScorerSettings]:
        """The scorers of a document by itself."""
        return [scorer for scorer in self.scorers if scorer.column not in COPY_COLUMNS]

    @property
    def of_copies(self) -> list[ScorerSettings]:
        """The scorers by how often a document is there, added once copies are known."""
        return [scorer for scorer in self.scorers if scorer.column in COPY_COLUMNS]

    @property
    def reads_encoder(self) -> bool:
        """Whether a scorer may look at the encoder: else quality can be prepared while the encoder is fitted."""
        return any(scorer.kind in ("probe", "encoder") or scorer.kind not in SCORERS for scorer in self.scorers)


class Topics(Section):
    """A topic of every document that has a vector: the cluster it lies in, named by the words that tell it apart."""

    make: Literal["beside", "always", "off"] = "beside"
    """"beside": where vectors are made anyway; "always": vectors are made for topics too; "off": none."""
    count: int = Field(32, ge=2, le=64)
    """Topics, 16 to 64 as a rule; fewer where a topic would have fewer than 50 documents."""
    seed: int = Field(0, ge=0, lt=1 << 63)
    """Same seed, same documents: same topics."""


class Quota(Section):
    """Bounds on the shares of a group's values in the selection, in the budget's own unit (documents or tokens)."""

    column: str
    """The documents' column: domain, language, dump, source, …"""
    minimum: dict[str, Share] = {}
    """Value: least share of the selection."""
    maximum: dict[str, Share] = {}
    """Value: greatest share of the selection."""
    as_pool: float | None = Field(None, ge=0, le=1)
    """Every value's share within so much of its share in the pool; 0: the same."""


class CoverageSettings(Section):
    """What algorithm coverage explains, and by which atoms."""

    atoms: dict[Part, float] | None = None
    """Weights of: ngrams (the pool's words), embedding (the pool's vectors, by anchors), target (the words of
    select.target). null: ngrams 3 and embedding 1; with a target, the target alone."""
    anchors: int = Field(1500, ge=1, le=40_000)
    """Documents of the pool, chosen by hash, at which the choice's density in embedding space is judged."""
    temperature: float = Field(0.1, gt=0)
    """τ of the kernel exp((cosine − 1) / τ)."""
    buckets: int = Field(10_000, ge=2, le=1 << 20)
    """Buckets that words and pairs of words are hashed to. More tell rare ones apart and cost memory and time."""
    curve: Literal["likelihood", "saturating"] = "likelihood"
    """What a word of the pool (ngrams) gains. "likelihood": it is wanted as often as the pool has it. "saturating": all
    words count alike, 1 − 2^−documents: half as much at each further document. It is for many buckets (262,144)."""
    document_weights: Literal["quality", "equal"] = "quality"
    """How the pool's documents count in the words to be covered (ngrams): by their quality as a share of the greatest,
    so that the words of good documents are covered first; equal: all alike."""
    smoothing: float = Field(0.02, gt=0, lt=1)
    """Share of the pool's own mixture under the logarithm: what a choice lacks altogether costs at most −log of it."""
    search: float = Field(1.0, gt=0, le=100)
    """How long optimum and mask are searched, as a multiple. 1 ends within about .1 % of the objective's span of what 3
    finds; a judge tells no difference."""
    leaks: bool = False
    """Keep documents that hold 13 words in a row of the target; false: they are named and left out of the choice."""

    @field_validator("atoms")
    @classmethod
    def _weighted(cls, value: dict[str, float] | None) -> dict[str, float] | None:
        if any(not weight > 0 for weight in (value or {}).values()):
            raise ValueError("parts need a positive weight each, e.g. {target: 1, embedding: 0.5}")
        return value or None


class Select(Section):
    """Which documents to keep: quality and diversity maximised together."""

    solver: Annotated[Solver, _extension("solver")] = "relaxation"
    """relaxation (with certificate), policy-gradient (the paper's), greedy, or a baseline."""
    algorithm: Algorithm | dict[Algorithm, float] | None = None
    """coverage (why: docs/judge.md), Pair_simi, DiSF, Facility, or registered; or {name: weight}. null:
    coverage. Solvers that ignore diversity report Pair_simi unless a target or this is set."""
    select_ratio: float | None = Field(None, gt=0, le=1)
    """Budget: share of the candidate documents. A share of documents says little of how much text is kept, for
    documents differ in length."""
    token_ratio: float | None = Field(None, gt=0, le=64)
    """Budget: share of the candidates' tokens. Where no budget is set it is 0.1; solvers that count documents take 0.1
    of these."""
    budget_documents: int | None = Field(None, ge=1)
    """Budget: documents, instead of a ratio."""
    budget_tokens: int | None = Field(None, ge=1)
    """Budget: tokens, instead of a ratio."""
    repeat: int = Field(1, ge=1, le=64)
    """How often a document may be taken, under a budget in tokens: the release says how often in a column `repeat`."""
    lamb: float | None = Field(None, ge=0, le=1)
    """λ, the weight of quality: 1 is top-quality, 0 is diversity alone. null: 0.7, with a target 0.3, and the paper's
    0.5 where algorithm is not coverage alone."""
    target: list[str] = []
    """Files whose texts the choice explains (algorithm coverage): text, or JSON lines (text; question, answer)."""
    coverage: CoverageSettings = CoverageSettings()
    """What algorithm coverage explains, and by which atoms."""
    calibrate: bool = True
    """Measure each term from a random set (0) to its own best set (1); false: the paper's raw sum."""
    scope: Literal["corpus", "shard"] = "corpus"
    """Select from all shards as one pool, or each shard on its own as the paper does."""
    seed: int = Field(0, ge=0, lt=1 << 63)
    """Same seed, same mask."""
    device: str = "auto"
    """"auto", "cpu", "cuda", "cuda:1"."""
    semantic_duplicates: float | None = Field(0.05, ge=0, lt=1)
    """SemDeDup's ε: first, `datamask select`, which sees no text, drops rows whose cosine to a kept one exceeds 1 − ε.
    null: near-duplicates stay, those of a curation's stage `duplicates` too."""
    quotas: list[Quota] = []
    """Shares of groups in the selection."""
    length_tolerance: float | None = Field(None, ge=0)
    """Mean tokens of the selection within this share of the pool's mean, e.g. 0.1; null: free."""
    n_epochs: int = Field(5000, ge=1)
    """policy-gradient: steps."""
    n_rollout: int = Field(128, ge=2)
    """policy-gradient: masks drawn a step (G)."""
    partial: float = Field(0.1, gt=0, le=1)
    """policy-gradient: share of the pool updated a step; 24 documents at least, unless published."""
    max_lr: float = Field(10.0, gt=0)
    """policy-gradient: first learning rate."""
    min_lr: float = Field(1.0, gt=0)
    """policy-gradient: last learning rate, reached linearly."""
    init: Literal["same", "quality"] = "quality"
    """policy-gradient: all logits equal, or the standardised quality."""
    prune: float = Field(0.0, ge=0, lt=1)
    """policy-gradient: share of lowest quality left out before selecting (the paper: 0.4 to 0.5); others refuse it."""
    block_documents: int = Field(1_000_000, ge=2)
    """policy-gradient: documents of a random block solved at a time."""
    gradient: Literal["surrogate", "order"] = "surrogate"
    """policy-gradient: of ln P(mask); mask − k·softmax(logits), or the exact one of the order drawn (Plackett–Luce)."""
    published: bool = False
    """policy-gradient: exactly the published estimator, without our variance reduction."""

    @field_validator("algorithm")
    @classmethod
    def _known_algorithm(cls, value: str | dict[str, float] | None) -> str | dict[str, float] | None:
        published = [name.lower() for name in PUBLISHED_NAMES]
        for name in [value] if isinstance(value, str) else value or ():
            if name.lower() in GONE_METRICS:
                own = f"examples/own_metric.py:{GONE_METRICS[name.lower()]}"
                raise ValueError(f"{name} is no algorithm but an example of a metric of your own: use {own}, or DiSF")
            if name.lower() not in published and extensions.find_extension("metric", name) is None:
                valid = sorted([*extensions.extension_names("metric"), *PUBLISHED_NAMES])
                raise ValueError(f"unknown algorithm {name!r}; valid: {', '.join(valid)}, or MODULE:CLASS")
        if isinstance(value, dict) and not (value and all(weight > 0 for weight in value.values())):
            raise ValueError("several algorithms need a positive weight each, e.g. {DiSF: 1, Pair_simi: 0.5}")
        return value

    @model_validator(mode="after")
    def _one_budget(self) -> Select:
        for one, other in (("budget_documents", "budget_tokens"), ("select_ratio", "token_ratio")):
            if getattr(self, one) and getattr(self, other):
                raise ValueError(f"{one} and {other} are both set; keep one")
        if self.token_ratio and self.token_ratio > self.repeat:
            raise ValueError(f"token_ratio {self.token_ratio:g} is more than repeat {self.repeat} lets documents fill")
        return self

    @model_validator(mode="after")
    def _repeatable(self) -> Select:
        if self.repeat == 1:
            return self
        if not (self.budget_tokens or self.token_ratio) and (self.budget_documents or self.select_ratio):
            raise ValueError(
                "repeat takes documents several times, so the budget must count tokens; set token_ratio, or "
                "budget_tokens"
            )
        given = self.algorithm if isinstance(self.algorithm, dict) else [self.algorithm or ""]
        if "facility" in [_canonical(name) for name in given]:
            raise ValueError(
                "repeat and Facility: a second copy of a document is no nearer to any other, so it changes nothing; "
                "use coverage, Pair_simi or DiSF, or set repeat to 1"
            )
        return self


class ResolvedSelect(Select):
    """`Select` after `resolve`: every default that depends on another setting is filled in, and one budget is set."""

    algorithm: Algorithm | dict[Algorithm, float]
    lamb: float

    @property
    def metrics(self) -> dict[str, float]:
        """Weight by the metrics' canonical names: pairwise, disf, coverage-embedding, …, or a registered one."""
        given = {self.algorithm: 1.0} if isinstance(self.algorithm, str) else self.algorithm
        found: dict[str, float] = {}
        for name, weight in given.items():
            canonical = _canonical(name)
            parts = self.parts if canonical == "coverage" else {}
            for part, share in parts.items():
                found[f"coverage-{part}"] = found.get(f"coverage-{part}", 0.0) + weight * share / sum(parts.values())
            if not parts:
                found[canonical] = weight
        return found

    @property
    def parts(self) -> dict[str, float]:
        """Weight by the parts of algorithm coverage."""
        return {str(part): weight for part, weight in (self.coverage.atoms or {}).items()}

    @property
    def metric(self) -> str:
        """The metrics' canonical names, joined by "+"."""
        return "+".join(self.metrics)

    @property
    def reads_vectors(self) -> bool:
        """Whether the choice depends on the documents' vectors. A metric or solver of the user's own is given them."""
        own = self.solver not in extensions.BUILT_IN["solver"] or self.solver == "semdedup"
        return own or not self.metrics.keys() <= {"coverage-ngrams", "coverage-target"}

    @property
    def in_tokens(self) -> bool:
        """Whether the budget counts tokens."""
        return bool(self.budget_tokens or self.token_ratio)

    @property
    def budget_name(self) -> str:
        """The one setting of `BUDGETS` that counts."""
        return next(name for name in BUDGETS if getattr(self, name))

    def facts(self) -> dict[str, Any]:
        """What was asked, defaults included: algorithm, the parts of coverage, λ, the budget, the seed."""
        budget = self.budget_name
        parts = {"parts": self.parts} if "coverage-" in self.metric else {}
        asked = {"lamb": self.lamb, budget: getattr(self, budget), "seed": self.seed}
        return {"algorithm": self.algorithm, **parts, **asked}


def resolve(
    settings: Select | None = None,
    changes: Mapping[str, Any] = MappingProxyType({}),
    *,
    words: bool = True,
    tokens: bool = True,
) -> ResolvedSelect:
    """Settings with changes laid over them and every default filled in that depends on another setting.

    :param changes: a budget among them replaces the settings' own.
    :param words: whether texts are at hand. Where there are features alone, the algorithm is the published one unless
        it or a target is set, and coverage is the embedding's.
    :param tokens: whether token counts are at hand; without them the budget counts documents.
    :raises ConfigError: a change is unknown or invalid.
    """
    if isinstance(settings, ResolvedSelect) and not changes:
        return settings
    asked = settings or Select()
    if changes:
        asked = validate_section(Select, lay_settings(asked.model_dump(), changes, Select))
    found: dict[str, Any] = {"algorithm": asked.algorithm, "lamb": asked.lamb}
    if asked.algorithm is None:
        unseen = asked.solver in UNSEEING or not words
        found["algorithm"] = "Pair_simi" if unseen and not asked.target else "coverage"
    if asked.coverage.atoms is None:
        pool: dict[Part, float] = POOL_PARTS if words else {"embedding": 1.0}
        found["coverage"] = asked.coverage.model_copy(update={"atoms": TARGET_PARTS if asked.target else pool})
    if asked.lamb is None:
        covers = isinstance(found["algorithm"], str) and _canonical(found["algorithm"]) == "coverage"
        found["lamb"] = (TARGET_LAMB if asked.target else COVERAGE_LAMB) if covers else PAPER_LAMB
    if asked.budget_documents or asked.budget_tokens:
        found |= {"select_ratio": None, "token_ratio": None}
    elif not (asked.select_ratio or asked.token_ratio):
        counts = asked.repeat > 1 or (tokens and _holds_tokens(asked.solver))
        found["token_ratio" if counts else "select_ratio"] = USUAL_RATIO
    return ResolvedSelect.model_construct(**{**dict(asked), **found})


def _canonical(algorithm: str) -> str:
    """An algorithm's name among the metrics: pairwise, disf, facility, coverage, or a registered one."""
    published = {name.lower(): canonical for name, canonical in PUBLISHED_NAMES.items()}
    own = extensions.find_extension("metric", algorithm)
    return published.get(algorithm.lower()) or (own.name if own else algorithm.lower())


def _holds_tokens(solver: str) -> bool:
    """Whether a solver can hold a budget in tokens. Built-in ones are known without importing them."""
    if solver in extensions.BUILT_IN["solver"]:
        return solver not in COUNT_DOCUMENTS
    return "tokens" in getattr(extensions.require("solver", solver).load(), "holds", ())


class OwnFilter(Section):
    """A filter of your own."""

    use: Annotated[str, _extension("filter")]
    """module:Class, file.py:Class, or a registered name."""
    options: dict[str, Any] = {}
    """What it is constructed with."""
    name: str = Field("", pattern=r"^[A-Za-z0-9_-]*$")
    """What it is called where a document's reason is told; "": its registered name, or its class's."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, values: Any) -> Any:
        return {"use": values} if isinstance(values, str) else values

    @property
    def label(self) -> str:
        """The filter's name in reasons and counts."""
        return self.name or extensions.require("filter", self.use).label


class Filter(Section):
    """Which documents may be selected at all."""

    where: str | None = None
    """A SQL condition (DuckDB) over columns and scores, e.g. "token_count > 50 and url not like '%spam%'"."""
    languages: list[str] = []
    """Keep these values of `language`; []: all. What a corpus does not state is identified (en, am)."""
    identify: Literal["needed", "always", "off"] = "needed"
    """Identify the language of documents whose corpus does not state it, for the columns language and language_score of
    the release too: "needed": where filter.languages is set; "always"; "off": such documents are in none of these."""
    min_tokens: int | None = Field(None, ge=0)
    """Least token_count."""
    max_tokens: int | None = Field(None, ge=1)
    """Greatest token_count."""
    decontaminate: list[str] = []
    """Files of test items (JSON lines with text, or question and answer; or plain text): what holds one is left out."""
    contamination: float = Field(0.5, gt=0, le=1)
    """Share of a test item's words, in rows of 13, that a document may not hold; 39 words are always too many."""
    exact_duplicates: bool = True
    """Keep one, the least altered, of documents with the same normalised text, across all shards."""
    own: list[OwnFilter] = []
    """Filters of your own, asked after where and languages: module:Class, or {use: …, options: {…}}."""
    order: Literal["before", "after"] = "before"
    """Filter before selecting (the budget is spent on what survives) or after."""
    memory_limit: str = "1GB"
    """DuckDB's memory; more is spilled to work/tmp."""

    @field_validator("memory_limit")
    @classmethod
    def _size(cls, value: str) -> str:
        if not re.fullmatch(r"\d+(\.\d+)?\s*[KMGT]i?B", value, re.IGNORECASE):
            raise ValueError("should be a size, such as 1GB or 500MB")
        return value


class Duplicates(Section):
    """Near-duplicates: found by samples of shingles, then every pair is read whole before a document falls."""

    jaccard: float | None = Field(0.35, ge=0.2, le=1)
    """Share of the shingles of two texts that they have in common, from which they are near-duplicates; below 0.8 they
    must also differ by single words here and there, as copies do; null: off."""
    containment: float | None = Field(0.9, ge=0.5, le=1)
    """Share of a text's shingles that are in a longer one, from which it is contained there; null: off."""
    count: bool = False
    """Count each document's copies: the columns copies, copy_sources and copy_dumps (docs/duplicates.md). They are
    counted without this too where a condition, a quota or a scorer of kind column names one."""
    against: list[str] = []
    """Output folders of earlier curations: what those selected stays, and its duplicates fall here."""

    @model_validator(mode="before")
    @classmethod
    def _as_recorded(cls, given: Any) -> Any:
        """Without the settings of earlier versions, by the values that their runs record where nobody set them."""
        if not isinstance(given, dict):
            return given
        gone = {"semantic": ("off", False), "alarm_share": (0.5,), "alarm": ("warn",)}
        given = {name: value for name, value in given.items() if value not in gone.get(name, ())}
        if "semantic" in given:
            raise ValueError("semantic is no setting; select.solver: semdedup leaves out what is near by embeddings")
        return given


Statement = Literal[
    "provider", "representative", "models", "dependencies", "placed", "content", "languages", "datasets", "crawlers",
    "user_data", "synthetic_data", "other_sources", "opt_outs", "illegal_content", "other",
]  # fmt: skip  # of the template for Article 53(1)(d) of the EU's AI Act, in its order


class ReleaseSettings(Section):
    """What is published."""

    name: str = "datamask-curated"
    """Name of the dataset on its card."""
    license: str | None = None
    """Licence identifier for the card, which only you can know: the sources' (FineWeb's is odc-by); null: none."""
    statements: dict[Statement, str] = {}
    """What the public summary of training content says of what only you know: provider, models, opt_outs, …"""
    small_enterprise: bool = False
    """The provider is a small or medium enterprise: the summary lists 5 % of the domains, 1,000 at most, not 10 %."""
    personal: Literal["off", "flag", "replace"] = "off"
    """Personal data in the published text: "flag": counted by document, in a column personal_data; "replace": counted,
    and replaced by what belongs to nobody."""
    personal_kinds: list[Literal["email", "ip", "phone", "card"]] = ["email", "ip", "phone", "card"]
    """Which."""
    personal_region: str | None = Field(None, pattern="^[A-Z]{2}$")
    """Of phone numbers without a country's code (ISO 3166: DE); null: only numbers that have one are found."""
    rows_per_file: int = Field(500_000, ge=1)
    """Greatest number of rows of a data file."""
    bytes_per_file: int = Field(1_000_000_000, ge=1000)
    """Text bytes after which a new data file begins."""
    row_group_rows: int = Field(1000, ge=1)
    """Rows of a row group: small ones stream and shuffle well."""
    repeated_rows: bool = False
    """select.repeat above 1: publish a document as often as it is taken; false: once, with the column `repeat`."""
    keep: int = Field(0, ge=0)
    """Releases kept, the newest; 0: all."""


class RunSettings(Section):
    """How the work is carried out."""

    engine: Literal["threads", "dask", "ray"] = "threads"
    """Prefect's task runner."""
    address: str | None = None
    """Address of a Dask or Ray cluster; null: a local one."""
    workers: int | None = Field(None, ge=1)
    """Tasks at a time; null: one per core."""
    retries: int = Field(3, ge=0)
    """Attempts again after a failure that may pass (storage, network)."""
    retry_delay: float = Field(2.0, ge=0)
    """Seconds before the first attempt again; doubled each time."""
    timeout: float | None = Field(None, gt=0)
    """Seconds that a task on shards may take before it is stopped and tried again; null: no limit."""
    shards_per_task: int | None = Field(None, ge=1)
    """Shards a task run handles; null: one, and more where a stage would have over 64 task runs a worker, or
    1,000."""
    refresh: Literal["solve", "prices"] = "solve"
    """refresh: "solve" selects again from all stored features; "prices" leaves what was decided as it is and selects
    new documents beside it, and solves after all where another metric than coverage is asked for, or the budget or the
    solved gap is missed by over 1 %."""
    allow_failed_shards: bool = False
    """Publish without shards that failed; the manifest names them."""
    allow_loss: bool = False
    """refresh: publish though shards of the last release are gone, or more of its rows than `loss`."""
    loss: float = Field(0.01, ge=0, le=1)
    """refresh: greatest share of the last release's rows that may be gone from files that changed."""
    room: Literal["refuse", "off"] = "refuse"
    """"refuse": a run that the disk cannot hold, by a forecast from the input's size, is not begun; "off": it is."""
    quarantine: float = Field(0.2, ge=0, le=1)
    """Greatest share of a file's rows that may be no documents; with more the run stops and says which and why."""
    gpus: int = Field(0, ge=0)
    """GPUs that embedding and mask tasks may claim at a time; 0: none."""


class Config(Section):
    """All settings of a curation."""

    corpus: Corpus = Corpus()
    encoder: EncoderSettings = EncoderSettings()
    quality: Quality = Quality()
    topics: Topics = Topics()
    select: Select = Select()
    filter: Filter = Filter()
    duplicates: Duplicates = Duplicates()
    release: ReleaseSettings = ReleaseSettings()
    run: RunSettings = RunSettings()

    @property
    def selection(self) -> ResolvedSelect:
        """The section `select` with its defaults filled in: what a run uses. `select` itself is what was given."""
        return resolve(self.select)

    @property
    def reads_vectors(self) -> bool:
        """Whether anything reads the documents' vectors: scorers, the choice or topics. Else none are made."""
        return self.topics.make == "always" or self.quality.reads_encoder or self.selection.reads_vectors

    @property
    def makes_topics(self) -> bool:
        """Whether documents get topics, a column of their own."""
        return self.topics.make != "off" and self.reads_vectors

    @property
    def condition_reads_topics(self) -> bool:
        """Whether `filter.where` may name the column topic."""
        return "topic" in (self.filter.where or "").lower()

    @property
    def counts_copies(self) -> bool:
        """Whether the release says how many copies a document has."""
        return counts_copies(self.model_dump(mode="json"))

    @property
    def resolved(self) -> Config:
        """The configuration to show: with `selection` as its section `select`."""
        return self.model_copy(update={"select": self.selection})


def counts_copies(settings: Mapping[str, Any]) -> bool:
    """Whether settings, as plain data that may hold anything, ask for the columns `COPY_COLUMNS`."""
    section = {name: value for name, value in settings.items() if isinstance(value, Mapping)}
    asked = {"filter": "where", "quality": "scorers", "select": "quotas"}
    said = [str(section.get(name, {}).get(setting)) for name, setting in asked.items()]
    named = any(re.search(rf"\b{column}\b", each, re.IGNORECASE) for column in COPY_COLUMNS for each in said)
    return named or section.get("duplicates", {}).get("count") is True


# ---------------------------------------------------------------- in


def load_config(
    path: str | Path | None = None, overrides: Sequence[str] = (), base: Mapping[str, Any] | None = None
) -> Config:
    """The settings of a YAML file (all optional) with `section.name=value` overrides, values read as YAML.

    :param base: settings that file and overrides are laid over, e.g. those of a release.

    :raises ConfigError: the file is absent or not YAML, or a setting is unknown or invalid; names each and the valid.
    """
    settings: dict[str, Any] = deepcopy(dict(base or {}))
    source = "the settings"
    if path is not None:
        source = str(path)
        try:
            given = _parse(Path(path).read_text(encoding="utf-8"), source) or {}
        except OSError as error:
            raise ConfigError(
                f"cannot read configuration {path}: {error.strerror}; `datamask config` prints a complete one",
                path=str(path),
                next=["datamask config"],
            ) from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"configuration {path} is not UTF-8 text (byte {error.start})", path=str(path)) from error
        if not isinstance(given, dict):
            valid = list(Config.model_fields)
            said = f"configuration {path} must be a mapping of sections: {', '.join(valid)}"
            raise ConfigError(said, path=str(path), valid=valid)
        settings = lay_settings(settings, given)
    named = {override.partition("=")[0].strip() for override in overrides}
    if named & {f"select.{name}" for name in BUDGETS} and isinstance(settings.get("select"), dict):
        settings["select"] = {name: value for name, value in settings["select"].items() if name not in BUDGETS}
    for override in overrides:
        name, equals, value = override.partition("=")
        if not equals:
            raise ConfigError(f"--set {override}: expected section.name=value, e.g. --set select.lamb=0.7")
        *sections, last = name.strip().split(".")
        place: Any = settings
        for section in sections:
            place = place.setdefault(section, {}) if isinstance(place, dict) else None
        if not isinstance(place, dict):
            raise ConfigError(f"--set {override}: {name} does not name a setting", setting=name)
        try:
            place[last] = _parse(value, f"--set {override}")
        except ConfigError as error:
            quoted = shlex.quote(f"{name}={json.dumps(value, ensure_ascii=False)}")
            raise ConfigError(f"{error}; if it is a text, put it in quotes of its own: --set {quoted}") from error
    return validate(settings, source)


def validate(settings: Mapping[str, Any], source: str = "the settings") -> Config:
    """A Config from plain data, or one ConfigError that lists every invalid setting.

    :raises ConfigError: see `load_config`.
    """
    try:
        return Config.model_validate(settings)
    except ValidationError as error:
        raise _refused(error, f"{source}: ") from None


def over_release(
    settings: Mapping[str, Any], changes: Config | None = None, remedy: str = "give the settings again: --config FILE"
) -> dict[str, Any]:
    """A release's settings, to go on with, with what `changes` sets laid over them, key by key.

    They lack what must be said anew: a loss that was allowed once, and code that a model brings.

    :param remedy: what to do where the release names code that may not run.
    :raises ConfigError: the settings name code that belongs to no installed package, and `changes` does not name it.
    """
    given = changes.model_dump(mode="json", exclude_unset=True) if changes else {}
    kept = deepcopy(dict(settings))
    kept.get("run", {}).pop("allow_loss", None)
    kept.get("encoder", {}).pop("trust_remote_code", None)
    merged, named = lay_settings(kept, given), _paths_to_code(given)
    if paths := [path for path in _paths_to_code(merged) if path not in named]:
        raise ConfigError(
            f"the release was made with code of one's own ({', '.join(paths)}), which is not run because a release "
            f"says so; {remedy}"
        )
    return merged


def change_settings(config: Config, **sections: Mapping[str, Any]) -> Config:
    """The configuration with these settings, by section; those that are None, False or empty change nothing.

    :raises ConfigError: a value is out of range.
    """
    given = {
        section: {name: value for name, value in values.items() if not (value is None or value is False or value == [])}
        for section, values in sections.items()
    }
    return validate(lay_settings(config.model_dump(), given)) if any(given.values()) else config


def lay_settings(
    settings: Mapping[str, Any], changes: Mapping[str, Any], model: type[Section] = Config
) -> dict[str, Any]:
    """Settings with changes laid over them, key by key; a budget among the changes replaces the one before.

    A setting that is itself a mapping, such as corpus.columns, is replaced as a whole: its keys are the user's.

    :param model: what the settings are of: all sections, or one.
    """
    merged = deepcopy(dict(settings))
    if model is Select and any(changes.get(name) is not None for name in BUDGETS):
        merged = {name: value for name, value in merged.items() if name not in BUDGETS}
    for name, value in changes.items():
        inner = model.model_fields[name].annotation if name in model.model_fields else None
        if isinstance(inner, type) and issubclass(inner, Section) and isinstance(value, Mapping):
            merged[name] = lay_settings(merged.get(name) or {}, value, inner)
        else:
            merged[name] = value
    return merged


def _paths_to_code(settings: Mapping[str, Any]) -> list[str]:
    """The extensions that are named by where their code lies, rather than as an installed package calls them."""
    section = {name: value for name, value in settings.items() if isinstance(value, Mapping)}
    algorithm = section.get("select", {}).get("algorithm") or ""
    given: list[tuple[extensions.Kind, Any]] = [
        ("encoder", section.get("encoder", {}).get("model")),
        ("solver", section.get("select", {}).get("solver")),
        *(("metric", name) for name in ([algorithm] if isinstance(algorithm, str) else algorithm)),
        *(("scorer", scorer.get("kind")) for scorer in section.get("quality", {}).get("scorers", [])),
        *(
            ("filter", own["use"] if isinstance(own, Mapping) else own)
            for own in section.get("filter", {}).get("own", [])
        ),
    ]
    found = [extensions.find_extension(kind, name) for kind, name in given if isinstance(name, str)]
    return [each.target for each in found if each is not None and each.name == each.target]


def validate_section(section: type[S], settings: Mapping[str, Any]) -> S:
    """One section's settings from plain data.

    :raises ConfigError: see `load_config`.
    """
    try:
        return section.model_validate(dict(settings))
    except ValidationError as error:
        raise _refused(error, root=section) from None


def _parse(text: str, source: str) -> Any:
    try:
        return YAML(typ="safe").load(text)
    except MarkedYAMLError as error:
        at = f"line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}"
        raise ConfigError(f"{source}: not valid YAML at {at}: {error.problem}") from error
    except (YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{source}: not valid YAML: {' '.join(str(error).split())[:300]}") from error


def _refused(error: ValidationError, source: str = "", root: type[BaseModel] | None = None) -> ConfigError:
    """The error that lists every invalid setting; its fields are the first one's."""
    problems = error.errors()
    first = problems[0]
    place = ".".join(str(part) for part in first["loc"]) or None
    valid = _names_at(first["loc"][:-1], root) if first["type"] == "extra_forbidden" else []
    context = first.get("ctx", {})
    valid = valid or re.findall(r"'([^']+)'", str(context.get("expected", "")))
    if isinstance(cause := getattr(context.get("error"), "__cause__", None), ConfigError):
        valid = list(cause.valid)  # of the extensions that a setting may name
    text = source + "\n".join(_explain(problem, root) for problem in problems)
    return ConfigError(text, setting=place, valid=valid) if valid else ConfigError(text, setting=place)


def _explain(problem: Any, root: type[BaseModel] | None = None) -> str:
    place = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        *parents, last = problem["loc"]
        valid = _names_at(parents, root)
        homes = [] if root else [f"{section}.{last}" for section in Config.model_fields if last in _names_at([section])]
        meant = f"; did you mean {' or '.join(homes)}?" if homes else nearest(str(last), valid)
        return f"unknown setting {place}{meant} (valid: {', '.join(valid)})"
    message = problem["msg"].removeprefix("Value error, ")
    value = repr(problem["input"])
    if isinstance(problem["input"], Mapping) and len(value) > MOST_SHOWN:
        return f"{place}: {message}" if place else message
    return f"{place} = {value}: {message}" if place else message


def _names_at(place: Iterable[int | str], root: type[BaseModel] | None = None) -> list[str]:
    model: type[BaseModel] = root or Config
    for part in place:
        if isinstance(part, str) and part in model.model_fields:
            annotation = model.model_fields[part].annotation
            inner = [a for a in (annotation, *get_args(annotation)) if isinstance(a, type) and issubclass(a, BaseModel)]
            model = inner[0] if inner else model
    return list(model.model_fields)


# ---------------------------------------------------------------- out


def to_yaml(config: Config | None = None) -> str:
    """The complete configuration as YAML, a comment per setting."""
    document = CommentedMap()
    for name, section in config or Config():
        document[name] = _commented(section, indent=2)
        document.yaml_set_comment_before_after_key(name, before="\n" + (type(section).__doc__ or "").strip())
    stream = io.StringIO()
    writer = YAML()
    writer.width = 120
    writer.dump(document, stream)
    return stream.getvalue().lstrip()


def _commented(section: Section, indent: int) -> CommentedMap:
    """A section's settings, and those of sections in it, each below what it means."""
    values = CommentedMap(section.model_dump(mode="json"))
    for setting, info in type(section).model_fields.items():
        inner = getattr(section, setting)
        if isinstance(inner, Section):
            values[setting] = _commented(inner, indent + 2)
        values.yaml_set_comment_before_after_key(setting, before=info.description, indent=indent)
    return values
