"""An embedded corpus in memory: what `sweep`, `ablate` and `judge` select from, and how they look at a selection.

corpus = load_corpus("out/real", documents=100_000)
mask = choose_documents(corpus, corpus.settings(), judged=targets)      # (N,) bool
corpus.measure(mask)["vendi"]
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from datamask.config import Config, ResolvedSelect, Select, load_config, resolve
from datamask.devices import pick_device
from datamask.errors import ConfigError, InputError
from datamask.report import statistics
from datamask.report.embedding_sample import Sample, read_sample, value_names
from datamask.selection.arrays import select
from datamask.selection.cover.counting import read_target, reads_words
from datamask.selection.problem.pool import Pool
from datamask.stages import recorded
from datamask.study.targets import Target

NEIGHBOUR_QUERIES = 2_000  # documents of a selection whose nearest neighbour is looked up
COMPARED = 50_000  # documents of a selection that are compared
PLAIN = ("random", "top-quality", "semdedup")  # solvers that look at no metric, and so need no words


@dataclass(frozen=True, eq=False)
class Embedded:
    """The candidates of a corpus (after filters and deduplication), or a uniform sample of them."""

    config: Config
    work: str
    sample: Sample
    rows: npt.NDArray[np.intp]  # (N,) the candidates' places in the sample
    features: npt.NDArray[np.float16]  # (N, d); where no vectors were made they tell documents apart and no more
    share: float  # of the corpus's candidates that are here

    def __len__(self) -> int:
        return len(self.rows)

    def require_vectors(self, who: str) -> None:
        """:raises ConfigError: the documents have no vectors. who: what reads them."""
        if not self.sample.embedded:
            raise ConfigError(
                f"{who} reads vectors, and none were made, because the run's settings read none; add the part "
                "embedding to select.coverage.atoms and run `datamask curate` again (what is done is kept)"
            )

    @property
    def quality(self) -> npt.NDArray[np.float32]:
        """(n,) quality scores of these documents."""
        return self.sample.quality[self.rows]

    @property
    def tokens(self) -> npt.NDArray[np.int64]:
        """(n,) token counts of these documents, at least 1."""
        return np.maximum(self.sample.tokens[self.rows], 1)

    @property
    def scores(self) -> dict[str, npt.NDArray[np.float32]]:
        """Every scorer's column, quality_score first."""
        return {name: values[self.rows] for name, values in self.sample.scores.items()}

    @property
    def groups(self) -> dict[str, npt.NDArray[np.object_]]:
        """Group column -> (n,) values of these documents."""
        return {name: values[self.rows] for name, values in self.sample.groups.items()}

    def subset(self, keep: npt.NDArray[np.bool_]) -> Embedded:
        return replace(self, rows=self.rows[keep], features=self.features[keep])

    def pool(self, settings: ResolvedSelect) -> Pool:
        groups = self.sample.pool_groups(settings, self.rows)
        return Pool(self.features, self.quality, self.tokens, groups, device=pick_device(settings.device))

    def given(self, **changes: Any) -> Select:
        """The corpus's selection settings as they were given, with changes; a budget in numbers is scaled to the
        sample."""
        select = self.config.select
        for name in ("budget_documents", "budget_tokens"):
            if (value := getattr(select, name)) and self.share < 1:
                changes = {name: max(1, round(value * self.share)), **changes}
        return select.model_copy(update=changes)

    def settings(self, **changes: Any) -> ResolvedSelect:
        """`given`, its defaults filled in before the changes."""
        return resolve(self.given()).model_copy(update=changes)

    def measure(self, selected: npt.NDArray[Any], columns: bool = True) -> dict[str, Any]:
        """What a selection is like: quality by every scorer, diversity, near-duplicates, lengths, groups.

        selected: (N,) bool, or how often each document is taken: it counts so often in tokens, quality, lengths and
        groups, once as a document. Diversity is measured on at most COMPARED documents, drawn by the settings' seed.
        """
        rows, copies = np.flatnonzero(selected), np.repeat(np.arange(len(selected)), np.asarray(selected, np.int64))
        generator = np.random.default_rng([self.config.selection.seed, 11])
        compared = np.sort(generator.permutation(rows)[:COMPARED])
        features = self.features[compared]
        asked = np.sort(generator.permutation(len(compared))[:NEIGHBOUR_QUERIES])
        nearest = statistics.nearest_similarity(features, asked) if self.sample.embedded else None
        tokens = self.tokens
        found: dict[str, Any] = {
            "documents": len(rows),
            "tokens": int(tokens[copies].sum()),
            "mean_quality": float(self.quality[copies].mean(dtype=np.float64)) if len(rows) else float("nan"),
            "scores": {name: float(values[copies].mean(dtype=np.float64)) for name, values in self.scores.items()},
            "vendi": statistics.vendi_score(features) if self.sample.embedded else None,
            "near_duplicates": None if nearest is None else statistics.near_duplicate_share(nearest),
            "length_ratio": statistics.length_ratio(tokens[copies], tokens),
        }
        if columns:
            found["effective"] = {
                name: statistics.effective_number(np.unique(value_names(values[copies]), return_counts=True)[1])
                for name, values in self.groups.items()
            }
            found["coverage"] = {
                name: statistics.coverage(values[rows], values) for name, values in self.groups.items()
            }
            found["shares"] = {name: shares(values[copies]) for name, values in self.groups.items()}
        return found


def shares(values: npt.NDArray[np.object_]) -> Mapping[str, float]:
    """Value -> share of the documents, largest first."""
    names, counts = np.unique(value_names(values), return_counts=True)
    order = np.lexsort((names, -counts))
    return {str(names[place]): float(counts[place] / max(len(values), 1)) for place in order}


def load_corpus(place: str, documents: int, overrides: Sequence[str] = (), seed: int | None = None) -> Embedded:
    """The corpus of an output folder (see `stages.recorded`), at most about `documents` of its documents.

    :param seed: of the sample; the settings' own by default.
    :param overrides: section.name=value, laid over the last run's settings (those of `select` are what matters here).
    :raises InputError: no curated corpus there, or nothing in it to select from.
    :raises ConfigError: an override is wrong.
    """
    all_files, config, work = recorded(place)
    config = load_config(None, overrides, config.model_dump(mode="json")) if overrides else config
    total = sum(files.masks.rows for files in all_files if files.masks)
    sample = read_sample(all_files, config, documents, seed)
    rows = np.flatnonzero(sample.candidates)
    if len(rows) < 2:
        raise InputError(f"{place}: {len(rows)} documents are left after the filters; nothing to choose between")
    return Embedded(config, work, sample, rows, sample.features(rows), min(1.0, documents / max(total, 1)))


# ---------------------------------------------------------------- what settings choose from it
# A choice made for a target may be told everything about it but what it is judged by: the items that the judge reads
# are taken out of the texts of `select.target` before the choice is made.


def choose_documents(
    corpus: Embedded,
    settings: ResolvedSelect,
    judged: Sequence[Target] = (),
    texts: Sequence[bytes] | None = None,
    quality: npt.NDArray[np.float32] | None = None,
    note: Callable[[str], None] = lambda line: None,
) -> npt.NDArray[Any]:
    """The selection: (N,) bool, or with `select.repeat` how often each document is taken.

    :param judged: targets whose items the choice must not be told.
    :param texts: the candidates'; read from the corpus where they are needed and not given.
    :param quality: (N,) instead of the corpus's quality score.
    :param note: is told what a user has to know of the choice: documents left out since they hold the target.
    :raises ConfigError: the algorithm covers a target and `select.target` names none.
    :raises InputError: the judge reads every item of `select.target`; or as `arrays.select`.
    """
    words = {}
    if settings.solver == "semdedup" or (settings.solver not in PLAIN and settings.reads_vectors):
        corpus.require_vectors(f"solver {settings.solver} on {settings.metric}")
    if settings.solver in PLAIN:
        settings = settings.model_copy(update={"algorithm": "pairwise", "target": []})
    elif reads_words(settings):
        words = _words(corpus, settings, judged, texts)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", UserWarning)
        found = select(
            corpus.features,
            corpus.quality if quality is None else quality,
            tokens=corpus.tokens,
            settings=settings,
            **words,
        )
    for warning in told:
        note(str(warning.message))
    return found.times


def texts_of(corpus: Embedded) -> list[bytes]:
    return [(row.get("text") or "").encode("utf-8", "replace") for row in corpus.sample.columns(corpus.rows, ["text"])]


def names_of(corpus: Embedded) -> list[str]:
    """The candidates as people look them up, shard:chunk_id."""
    return [f"{shard}:{chunk_id}" for shard, chunk_id in corpus.sample.places(corpus.rows)]


def _words(
    corpus: Embedded, settings: ResolvedSelect, judged: Sequence[Target], texts: Sequence[bytes] | None
) -> dict[str, Any]:
    held = texts_of(corpus) if texts is None else texts
    words: dict[str, Any] = {"texts": [text.decode("utf-8", "replace") for text in held]}
    if "coverage-target" in settings.metrics:
        words["target"] = _untold(settings, judged)
    return words


def _untold(settings: ResolvedSelect, judged: Sequence[Target]) -> list[str]:
    """The texts of `select.target` without those that a judge reads."""
    if not settings.target:
        raise ConfigError("algorithm coverage of a target needs one; set select.target to files of texts")
    read = {_plain(item.whole.decode("utf-8", "replace")) for target in judged for item in target.items}
    rest = [text for text in read_target(settings.target).texts if _plain(text) not in read]
    if not rest:
        raise InputError(
            f"the judge reads every item of select.target ({', '.join(settings.target)}), and a choice may not be told "
            "what it is judged by; judge by other targets, or by fewer of their bytes"
        )
    return rest


def _plain(text: str) -> str:
    return " ".join(text.split())
