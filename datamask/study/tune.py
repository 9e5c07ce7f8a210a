"""λ and the mixture of diversities that the coder likes best on a corpus, checked on target sets it was not tuned on.

    found = tune("out/real", ["tasks/*.jsonl.gz"], Tuning(evaluations=60))
    found.says, found.contrasts[0].difference            # better than random, and by how many bits a byte

Half of the target sets, drawn by the seed, are held out whole. On a third of the (sampled) candidates every point is
chosen and read by the coder on the other sets: first the corners, then some spread evenly, then where a Gaussian
process expects the greatest improvement. What has the lowest mean of the process is chosen again on fresh pools, drawn
from the other two thirds, and compared there with random draws and with the corpus's own settings on the sets held
out: that gain is of documents and targets that played no part in the choice. Every evaluation is kept, so that the
same command goes on from where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from datamask import storage
from datamask.config import Config, validate
from datamask.corpus.ngrams import count_ngrams
from datamask.errors import ConfigError, InputError, several
from datamask.report.embedded import Embedded, load_corpus
from datamask.study.acquisition import expected, fit, most_promising
from datamask.study.choices import RANDOM, bytes_of, choices
from datamask.study.chosen import chosen, names_of, texts_of
from datamask.study.coder import ORDER, Coder, mean_bits
from datamask.study.inference import Contrast, Draw, Trial
from datamask.study.overlap import without_overlap
from datamask.study.run import MOST_BYTES, settings_of
from datamask.study.space import PARTS, TARGET, Point, Space
from datamask.study.targets import BYTES, Target, read_targets

VERSION = 1
TUNED, OWN = "tuned", "the corpus's own settings"
CANDIDATES = 1024
SPREAD = 6  # points after the corners that are spread evenly
LEAST_EVALUATIONS = 12
ROOM = 0.8  # of the smaller of the own settings' bytes and the budget's share: what every choice is read to


@dataclass(frozen=True)
class Tuning:
    """The settings of a search for the objective's weights."""

    evaluations: int = 60
    documents: int = 5_000  # of a pool, at most
    pools: int = 5  # fresh ones, for the check
    draws: int = 8  # random ones of each of them
    bytes: int | None = None  # of each choice
    target_bytes: int = BYTES
    held_out: int | None = None  # target sets; None: half
    aim: bool = False  # choices may cover the sets tuned on: of their items, those that the judge does not read
    order: int = ORDER
    seed: int = 0


@dataclass(frozen=True)
class PointEvaluation:
    """One point's choice. bits: the mean of the sets tuned on; nan where the choice held too few bytes to be read."""

    point: Point
    bits: float
    documents: int
    seconds: float


@dataclass(frozen=True)
class Tuned:
    """What was found."""

    parts: tuple[str, ...]
    evaluations: Sequence[PointEvaluation]
    point: Point
    expected: float  # of the point, by the process: bits a byte on the sets tuned on
    random: float  # of random draws of the pool tuned on, there
    contrasts: Sequence[Contrast]  # tuned − random, tuned − own, own − random: fresh pools, sets held out
    tuned_on: Sequence[str]
    held_out: Sequence[str]
    bytes: int
    pools: int
    says: str
    changes: Mapping[str, Any]  # of `select`: what the configuration file has


@dataclass(frozen=True, eq=False)
class _TuningPool:
    corpus: Embedded
    texts: list[bytes]

    @cached_property
    def counts(self) -> Any:
        """(N, J) sparse: the texts' n-grams."""
        return count_ngrams(text.decode("utf-8", "replace") for text in self.texts)


def tune(
    place: str,
    targets: Sequence[str],
    tuning: Tuning,
    overrides: Sequence[str] = (),
    progress: Callable[[str], None] = lambda line: None,
) -> tuple[Tuned, Config]:
    """Searches, checks, and says; with it the corpus's configuration as it should be.

    :param place: an output folder of `datamask curate`.
    :param targets: files, patterns of files too; two or more, since some are held out whole.
    :raises ConfigError: settings that nothing can be tuned with.
    :raises InputError: bad targets, too few documents, or choices that hold fewer bytes than asked for.
    """
    paths = storage.expand_patterns(targets)
    check(tuning, paths)
    read = read_targets(paths, tuning.target_bytes, tuning.seed)
    whole = load_corpus(place, 3 * tuning.documents, overrides, tuning.seed)
    texts = texts_of(whole)
    progress(f"looking for {several(len(read), 'target')} in {several(len(texts), 'document')}")
    kept, _ = without_overlap(read, texts, names_of(whole))
    held = split(len(kept), tuning)
    seen, unseen = [t for n, t in enumerate(kept) if n not in held], [t for n, t in enumerate(kept) if n in held]
    told = [path for n, path in enumerate(paths) if n not in held] if tuning.aim else []
    space = Space((*PARTS, TARGET) if told else PARTS)

    order = np.random.default_rng([tuning.seed, 97]).permutation(len(whole))
    size = min(tuning.documents, len(order) // 3)
    if size < 100:
        raise InputError(f"{len(order)} candidates are too few to tune on; curate 300 or more")
    fresh = [
        _pool(whole, texts, np.random.default_rng([tuning.seed, number, 103]).permutation(order[size:])[:size])
        for number in range(tuning.pools)
    ]
    bench = _Bench(_pool(whole, texts, order[:size]), space, told, kept, seen, unseen, Coder(tuning.order), tuning)
    record = storage.join(whole.work, "tune", f"{_key(whole, texts, kept, tuning)}.json")
    done = _search(bench, record, progress)
    points, bits = readable(done)
    means = expected(fit(points, bits), points)[0]
    best = points[int(np.argmin(means))]
    drawn = choices(bench.pool.texts, {}, bench.limit, tuning.draws, tuning.seed)
    random = float(np.mean([mean_bits(bench.coder.read(choice, seen)) for _, _, choice in drawn]))
    trial = _fresh(bench, fresh, best, progress)
    contrasts = trial.named([(TUNED, RANDOM), (TUNED, OWN), (OWN, RANDOM)])
    says, changes = concluded(contrasts, space, best, paths if tuning.aim else [])
    names = [target.name for target in seen], [target.name for target in unseen]
    least = float(means.min())
    found = Tuned(space.parts, done, best, least, random, contrasts, *names, bench.limit, tuning.pools, says, changes)
    settings = whole.config.model_dump(mode="json")
    settings["select"] |= {name: value for name, value in changes.items() if name != "coverage"}
    settings["select"]["coverage"] |= changes.get("coverage", {})
    return found, validate(settings, place)


def check(tuning: Tuning, paths: Sequence[str]) -> None:
    """:raises ConfigError: settings that nothing can be tuned with."""
    if tuning.evaluations < LEAST_EVALUATIONS:
        raise ConfigError(f"--evaluations {tuning.evaluations}: at least {LEAST_EVALUATIONS}, or nothing is searched")
    if tuning.pools < 2:
        raise ConfigError(f"--pools {tuning.pools}: at least 2, or the gain has no interval")
    if tuning.draws < 8:
        raise ConfigError(f"--draws {tuning.draws}: at least 8, or the spread of random choices is not known")
    if len(paths) < 2:
        raise ConfigError("one target set: name two or more, since some are held out whole to check what was tuned")
    if tuning.held_out is not None and not 0 < tuning.held_out < len(paths):
        raise ConfigError(f"--held-out {tuning.held_out}: 1 to {len(paths) - 1} of {len(paths)} target sets")


def split(count: int, tuning: Tuning) -> set[int]:
    """Which of the target sets are held out."""
    order = np.random.default_rng([tuning.seed, 101]).permutation(count)
    return set(order[: tuning.held_out or count // 2].tolist())


def _pool(whole: Embedded, texts: Sequence[bytes], rows: npt.NDArray[np.intp]) -> _TuningPool:
    keep = np.zeros(len(whole), dtype=bool)
    keep[rows] = True
    corpus = replace(whole.subset(keep), share=whole.share * len(rows) / len(whole))
    return _TuningPool(corpus, [texts[row] for row in np.flatnonzero(keep).tolist()])


def _key(whole: Embedded, texts: Sequence[bytes], targets: Sequence[Target], tuning: Tuning) -> str:
    """Of all that an evaluation depends on."""
    digest = blake2b(whole.features.tobytes(), digest_size=16)
    for text in (*texts, *(item.whole for target in targets for item in target.items)):
        digest.update(len(text).to_bytes(8, "little") + text)
    once = asdict(replace(tuning, evaluations=0, pools=0, draws=0))
    return storage.key(VERSION, once, whole.config.selection.model_dump(mode="json"), digest.hexdigest())


class _Bench:
    """The pool tuned on, and how a point is chosen and read."""

    def __init__(
        self,
        pool: _TuningPool,
        space: Space,
        told: Sequence[str],
        judged: Sequence[Target],
        seen: Sequence[Target],
        unseen: Sequence[Target],
        coder: Coder,
        tuning: Tuning,
    ) -> None:
        self.pool, self.space, self.told, self.judged = pool, space, list(told), judged
        self.seen, self.unseen, self.coder, self.tuning = seen, unseen, coder, tuning
        mask = self.own(pool, tuning.seed)
        own, share = bytes_of(pool.texts, mask), float(np.mean(mask)) * sum(map(len, pool.texts))
        if tuning.bytes and tuning.bytes > own:
            raise InputError(f"--bytes {tuning.bytes:,} is more than the own settings' choice holds; at most {own:,}")
        self.limit = tuning.bytes or min(MOST_BYTES, int(ROOM * min(own, share)))

    def own(self, pool: _TuningPool, seed: int) -> npt.NDArray[np.bool_]:
        """What the corpus's own settings choose."""
        return chosen(pool.corpus, settings_of(pool.corpus, {}, seed), self.judged, pool.texts)

    def choose(self, pool: _TuningPool, point: Point, seed: int) -> npt.NDArray[np.bool_]:
        settings = settings_of(pool.corpus, {**self.space.changes(point), "target": self.told}, seed)
        return chosen(pool.corpus, settings, self.judged, counts=pool.counts)

    def evaluate(self, point: Point) -> PointEvaluation:
        started = time.perf_counter()
        mask, bits = self.choose(self.pool, point, self.tuning.seed), float("nan")
        if bytes_of(self.pool.texts, mask) >= self.limit:
            [(_, _, choice)] = choices(self.pool.texts, {TUNED: mask}, self.limit, 0, self.tuning.seed)
            bits = mean_bits(self.coder.read(choice, self.seen))
        return PointEvaluation(point, bits, int(mask.sum()), time.perf_counter() - started)


def _search(bench: _Bench, record: str, progress: Callable[[str], None]) -> list[PointEvaluation]:
    """All evaluations: those that are kept, and the others, each kept as soon as it is made."""
    space, wanted = bench.space, bench.tuning.evaluations
    candidates = space.candidates(CANDIDATES, bench.tuning.seed)
    first = [*space.corners(), *candidates[:SPREAD]]
    done = []
    if storage.exists(record):
        rows = storage.read_json(record)["evaluations"]
        done = [PointEvaluation(**{**row, "bits": row["bits"] or np.nan, "point": tuple(row["point"])}) for row in rows]
        progress(f"{len(done)} evaluations of {record}")
    while len(done) < wanted:
        point = first[len(done)] if len(done) < len(first) else None
        if point is None:
            points, bits = readable(done)
            point = candidates[most_promising(fit(points, bits), candidates, points)]
        done.append(bench.evaluate(point))
        kept = [{**asdict(each), "bits": each.bits if np.isfinite(each.bits) else None} for each in done]
        storage.write_json(record, {"evaluations": kept})
        read = "too few bytes to be read" if np.isnan(done[-1].bits) else f"{done[-1].bits:.4f}"
        progress(f"{len(done)} of {wanted}  {space.said(point)}: {read}  {done[-1].seconds:.1f} s")
    return done[:wanted]


def readable(done: Sequence[PointEvaluation]) -> tuple[list[Point], list[float]]:
    """Points and bits; a choice of too few bytes to be read counts as the worst that was.

    :raises InputError: none was read.
    """
    known = [each.bits for each in done if np.isfinite(each.bits)]
    if not known:
        raise InputError("no choice holds the bytes that every choice is read to; ask for fewer with --bytes")
    return [each.point for each in done], [each.bits if np.isfinite(each.bits) else max(known) for each in done]


def _fresh(bench: _Bench, pools: Sequence[_TuningPool], best: Point, progress: Callable[[str], None]) -> Trial:
    """Tuned, own and random choices of fresh pools, read on the sets held out."""
    readings: dict[str, list[list[Draw]]] = {RANDOM: [], TUNED: [], OWN: []}
    for number, pool in enumerate(pools):
        masks = {TUNED: bench.choose(pool, best, number), OWN: bench.own(pool, number)}
        for by_pool in readings.values():
            by_pool.append([])
        for arm, _, choice in choices(pool.texts, masks, bench.limit, bench.tuning.draws, [bench.tuning.seed, number]):
            readings[arm][number].append(bench.coder.read(choice, bench.unseen))
        progress(f"fresh pool {number + 1} of {len(pools)} read")
    return Trial(readings)


def concluded(
    contrasts: Sequence[Contrast], space: Space, best: Point, aimed: Sequence[str]
) -> tuple[str, dict[str, Any]]:
    """What the check says, and the changes of `select` that follow; contrasts as `Tuned` has them."""
    against_random, against_own, own = contrasts
    if against_random.says == "better" and against_own.says != "worse":
        more = "better than" if against_own.says == "better" else "not told apart from"
        changes = {**space.changes(best), **({"target": list(aimed)} if aimed else {})}
        return f"tuned is better than a random choice, and {more} the corpus's own settings", changes
    if own.says == "better":
        return "the corpus's own settings are better than a random choice, and tuning found nothing better", {}
    return "nothing beats a random choice: neither what was tuned nor the corpus's own settings", {"solver": "random"}
