"""What judges read of the new documents: bits a byte of targets after the release's choice with them, and without.

Both are read to the same number of bytes; a fifth of the first is new. In a choice from old and new a small addition
has a share too small for any judge to hear. Which of its documents are chosen, that choice says itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from datamask.config import Config
from datamask.corpus.read import documents_at
from datamask.errors import InputError
from datamask.selection.candidates import Candidates
from datamask.stages import ShardFiles
from datamask.study.choices import SHARE as SPOILED
from datamask.study.choices import bytes_of, rows_of
from datamask.study.inference import Draw, Trial
from datamask.study.overlap import without_overlap
from datamask.study.run import MOST_BYTES, Settings, Tell, judges_of, read_choices
from datamask.study.targets import Target, cut_texts
from datamask.study.verdict import controls

WITH, WITHOUT = "with the new", "without"
SHARE = 0.2  # of the bytes read with the new that are new
REPEATED = 4  # times that a new text is read at most: so often repeats teach like new text (arXiv 2305.16264)
READS = 4  # of either, in pairs that have the rest of the choice in common
NETWORK = "tiny"  # its size; it begins with half of the text that the choice leaves, of which no draw takes any
DRAWN = 3  # times the tokens read of the choice, of the documents that random draws are taken from


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
    bytes: int  # of each reading
    new_bytes: int  # of them that are new, in those with the new
    judges: tuple[JudgeSays, ...]

    @property
    def says(self) -> str:
        """What the judges that passed their controls agree on; else not told apart."""
        said = {judge.says for judge in self.judges if all(judge.controls.values())} - {"not told apart"}
        return said.pop() if len(said) == 1 else "not told apart"


def judge_worth(
    both: Sequence[ShardFiles],
    candidates: Sequence[Candidates],
    chosen: Sequence[np.ndarray],
    config: Config,
    targets: Sequence[Target],
    settings: Settings,
    progress: Tell,
) -> JudgedWorth:
    """
    :param both: the old shards, then the new; candidates: theirs.
    :param chosen: of each old shard's candidates, how often each is taken by a choice from the old alone.
    :param settings: `bytes` of None: the release's choice, at most `MOST_BYTES`; pools and size have no say.

    :raises InputError: see `without_overlap`; or a choice is smaller than the bytes asked for.
    """
    settings = replace(settings, pools=1, size=NETWORK)
    generator = np.random.default_rng([settings.seed, 83])
    counts, first = np.concatenate(chosen), len(chosen)
    tokens = [np.concatenate([one.tokens for one in part]) for part in (candidates[:first], candidates[first:])]
    most = settings.bytes or MOST_BYTES
    taken = _some(np.flatnonzero(counts), tokens[0], most, generator)
    rows = np.union1d(taken, _some(np.arange(len(counts)), tokens[0], DRAWN * most, generator))
    progress("reading what judges read")
    pool, names = _texts(both[:first], candidates[:first], rows, config)
    fresh = _some(np.arange(len(tokens[1])), tokens[1], int(SHARE * most), generator)
    new, of_new = _texts(both[first:], candidates[first:], fresh, config)
    kept, _ = without_overlap(targets, pool + new, names + of_new)
    in_choice = np.where(np.isin(rows, taken), counts[rows], 0)
    size, new_size = bytes_of(pool, in_choice), bytes_of(new, np.ones(len(new)))
    begins = np.zeros(len(pool), bool)
    begins[np.flatnonzero(in_choice == 0)[::2]] = "network" in settings.judges
    drawn, before = ([text for text, own in zip(pool, begins, strict=True) if own == which] for which in (False, True))
    pool_size = bytes_of(drawn, np.ones(len(drawn)))
    held = min(size, int(pool_size * (1 - 2 * SPOILED)))  # a control reads the unspoiled part alone
    limit = settings.bytes or min(MOST_BYTES, held, int(REPEATED * new_size / SHARE))
    if limit > held:
        raise InputError(f"--bytes {limit:,} is more than the release's choice can give; ask for at most {held:,}")
    added = min(int(SHARE * limit), REPEATED * new_size)
    old, repeated = [pool[row] for row in rows_of(in_choice).tolist()], new * REPEATED
    told = []
    for judge, draws, _ in judges_of(settings, pool, before):
        heard = read_choices(judge, [(drawn, {})], kept, limit, draws, settings.controls, settings.seed, progress)
        read: dict[str, list[Draw]] = {WITH: [], WITHOUT: []}
        for number in range(READS):
            seed = [settings.seed, number]
            read[WITHOUT].append(judge.read(cut_texts(old, limit, seed), kept))
            both_parts = cut_texts(old, limit - added, seed) + cut_texts(repeated, added, seed)
            read[WITH].append(judge.read(both_parts, kept))
            progress(f"{judge.name}  with the new and without {number + 1}")
        trial = Trial({name: [draws] for name, draws in read.items()}, reference=WITHOUT)
        c = trial.contrast(WITH, WITHOUT, paired=True)
        passed = {control.name: control.passed for control in controls(heard.readings)}
        told.append(JudgeSays(judge.name, c.difference, c.half_width, c.says, passed, dict(c.targets)))
    return JudgedWorth(limit, added, tuple(told))


def _some(rows: np.ndarray, tokens: np.ndarray, most: int, generator: np.random.Generator) -> np.ndarray:
    """Some of the rows, ascending, drawn until they hold `most` tokens, and so as many bytes at least."""
    drawn = generator.permutation(rows)
    return np.sort(drawn[: int(np.searchsorted(np.cumsum(tokens[drawn]), most)) + 1])


def _texts(
    both: Sequence[ShardFiles], candidates: Sequence[Candidates], rows: np.ndarray, config: Config
) -> tuple[list[bytes], list[str]]:
    """The texts and the names of some candidates, by their places among all, ascending."""
    number = np.repeat(np.arange(len(both)), [len(own) for own in candidates])[rows]
    ids = np.concatenate([own.chunk_id[own.index] for own in candidates])[rows]
    places = [(both[place].shard.name, chunk_id) for place, chunk_id in zip(number, ids.tolist(), strict=True)]
    found = documents_at([files.shard for files in both], config, places, ["text"])
    texts = [(found[place].get("text") or "").encode("utf-8", "replace") for place in places]
    return texts, [f"{shard}:{chunk_id}" for shard, chunk_id in places]
