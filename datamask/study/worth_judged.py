"""What judges read of a choice with the new documents beside one without: bits a byte of targets, with controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from datamask.config import Config
from datamask.corpus.rows import corpus_rows
from datamask.selection.sharded.candidates import Candidates
from datamask.stages import ShardFiles
from datamask.storage import expand_patterns
from datamask.study.choices import bytes_of
from datamask.study.overlap import without_overlap
from datamask.study.run import MOST_BYTES, Settings, Tell, check_settings, judges_of, read_choices
from datamask.study.targets import read_targets
from datamask.study.verdict import conclude

WITH, WITHOUT = "with the new", "without"
DRAWN = 3  # times the bytes of a choice that random draws are taken from


@dataclass(frozen=True)
class WorthJudging:
    """What judges read: see `datamask judge`."""

    judges: tuple[str, ...] = ("coder", "n-grams")
    bytes: int | None = None  # of each choice; None: the smaller choice's, at most `study.run.MOST_BYTES`
    draws: int = 8  # random ones, for the controls and the intervals
    seed: int = 0


@dataclass(frozen=True)
class JudgeSays:
    """One judge: bits a byte with the new, minus without; below zero the new helps."""

    judge: str
    difference: float
    half_width: float  # of the 95 % interval
    says: str  # better, worse, not told apart
    controls: Mapping[str, bool]  # A/A, words shuffled, planted junk -> passed
    targets: Mapping[str, float]  # the difference on each


@dataclass(frozen=True)
class JudgedWorth:
    """All judges. `bytes`: read of each choice."""

    bytes: int
    judges: tuple[JudgeSays, ...]

    @property
    def says(self) -> str:
        """What the judges that passed their controls agree on; else not told apart."""
        said = {judge.says for judge in self.judges if all(judge.controls.values())} - {"not told apart"}
        return said.pop() if len(said) == 1 else "not told apart"


def judge_worth(
    both: Sequence[ShardFiles],
    candidates: Sequence[Candidates],
    masks: tuple[Sequence[np.ndarray], Sequence[np.ndarray]],
    config: Config,
    targets: Sequence[str],
    judging: WorthJudging,
    progress: Tell,
) -> JudgedWorth:
    """:param masks: with the new and without: of each shard's candidates, how often each is taken.

    :raises ConfigError: an unknown judge, or too few draws.
    :raises InputError: bad targets, or choices smaller than the bytes asked for.
    """
    settings = Settings(pools=1, draws=judging.draws, judges=judging.judges, seed=judging.seed)
    check_settings(settings)
    asked = read_targets(expand_patterns(targets), settings.target_bytes, judging.seed)
    after, before = (np.concatenate(mask) for mask in masks)
    drawn = np.random.default_rng([judging.seed, 83]).permutation(len(after))
    drawn = drawn[: DRAWN * int(max((after > 0).sum(), (before > 0).sum()))]
    rows = np.unique(np.concatenate([np.flatnonzero(after), np.flatnonzero(before), drawn]))
    progress("reading what judges read")
    texts, names = _texts(both, candidates, rows, config)
    kept, _ = without_overlap(asked, texts, names)
    chosen = {WITH: after[rows], WITHOUT: before[rows]}
    limit = judging.bytes or min(MOST_BYTES, *(bytes_of(texts, mask) for mask in chosen.values()))
    heard = {
        judge.name: read_choices(
            judge, [(texts, chosen)], kept, limit, draws, settings.controls, judging.seed, progress
        )
        for judge, draws, _ in judges_of(settings, texts)
    }
    told = []
    for judged in conclude(heard, [(WITH, WITHOUT)]).judges:
        (c,) = judged.named
        controls = {control.name: control.passed for control in judged.controls}
        told.append(JudgeSays(judged.name, c.difference, c.half_width, c.says, controls, dict(c.targets)))
    return JudgedWorth(limit, tuple(told))


def _texts(
    both: Sequence[ShardFiles], candidates: Sequence[Candidates], rows: np.ndarray, config: Config
) -> tuple[list[bytes], list[str]]:
    """The texts and the names of some candidates, by their places among all, ascending."""
    texts, names, first = [], [], 0
    for files, own in zip(both, candidates, strict=True):
        here = rows[(rows >= first) & (rows < first + len(own))] - first
        ids = own.chunk_id[own.index[here]]
        rows_ = corpus_rows(files.shard, config, ids, ["text"])
        texts += [(row.get("text") or "").encode("utf-8", "replace") for row in rows_]
        names += [f"{files.shard.name}:{chunk_id}" for chunk_id in ids]
        first += len(own)
    return texts, names
