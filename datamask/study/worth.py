"""What a new dump or data set adds to a curated corpus, before anybody trains on it.

    found = find_worth(["dumps/new.parquet"], against="out/mine", targets=["tasks/*.jsonl"])
    found.added, found.taken_share, found.gain, found.says

It is a refresh that publishes nothing. The new rows are read, embedded and scored by what the release fitted, in a work
folder of their own. Then copies are found, and two choices are made at the release's own budget by the same search:
from old and new, and from the old alone. Nothing lies in the release's folder afterwards that was not there before, and
of its texts only those are read that may be copies, and with targets those that judges read: its choice with the new
documents and without.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow.compute as pc
import torch

from datamask import storage
from datamask.carried_on import carry_on
from datamask.config import Config, from_release, lay_settings, validate
from datamask.corpus.read import read_documents, shard_schema
from datamask.engine import Threads
from datamask.errors import ConfigError, InputError
from datamask.filter import forgotten
from datamask.filter import wanted as near_duplicates_wanted
from datamask.filter.filters import check_left
from datamask.pipeline import STAGES
from datamask.release.release_folder import ReleaseFolder, find_release
from datamask.run import Previous, Run
from datamask.selection.calibration import make_problem
from datamask.selection.sharded.candidates import Candidates, gather_pool, read_candidates
from datamask.selection.stage import JOINT_DOCUMENTS, mask_shard
from datamask.selection.topics import model_path
from datamask.stages import ShardFiles, recorded
from datamask.study.run import Tell
from datamask.study.worth_judged import JudgedWorth, WorthJudging, judge_worth

MEASURES = ("index", "embed", "topics", "score", "signatures", "atoms", "leaks")  # of each document by itself
COLUMNS = ("topic", "language")  # by which what is taken is told
PASSED_OVER = 0.5  # of its share of the candidates' tokens: a choice that takes less of the new than this leaves it
PERCENTILES = (10, 50, 90)


@dataclass(frozen=True)
class GroupWorth:
    """What a choice from both takes of the new documents of one topic or language."""

    value: str
    documents: int  # that are new, after copies and filters
    tokens: int
    chosen: int  # documents
    chosen_tokens: int
    share: float  # of the choice's tokens


@dataclass(frozen=True)
class Worth:
    """What NEW adds. Shares are of tokens; qualities are on the release's scale."""

    release: str
    rows: int  # read of NEW
    lost: Mapping[str, int]  # rows by why they are none of the new documents
    added: int  # documents that are new
    added_tokens: int
    quality: Mapping[str, Mapping[str, float]]  # new, old -> mean, p10, p50, p90
    budget: float  # of the choice, the release's own, in tokens or documents
    in_tokens: bool
    pool_share: float  # of all candidates' tokens that are new
    taken_share: float  # of the tokens of a choice from both that are new
    taken: int  # documents
    gain: float | None  # of the objective over a choice from the old alone, by the pool of both; None: not computed
    groups: Mapping[str, Sequence[GroupWorth]] = field(default_factory=dict)  # topic, language -> the largest first
    judged: JudgedWorth | None = None  # where targets were given

    @property
    def says(self) -> str:
        """worth adding, not worth adding, or not told apart; see docs/howto-worth.md."""
        heard = self.judged.says if self.judged else ""
        if heard in ("better", "worse"):
            return "worth adding" if heard == "better" else "not worth adding"
        if not self.added or self.taken_share < PASSED_OVER * self.pool_share:
            return "not worth adding"
        return "not told apart" if self.judged else "worth adding"

    def as_json(self) -> dict[str, Any]:
        """All fields, ready for JSON."""
        return {**asdict(self), "says": self.says}


def find_worth(
    new: Sequence[str],
    against: str,
    targets: Sequence[str] = (),
    judging: WorthJudging = WorthJudging(),
    work: str | None = None,
    progress: Tell = lambda line: None,
) -> Worth:
    """What the documents of `new` would add to the release of `against`.

    :param new: files, folders or globs.
    :param against: an output folder of `datamask curate`, whose work/ is still there.
    :param targets: files of texts that judges read after the release's choice with the new documents and without.
    :param work: a folder for what is computed, so that a second call finds it; None: one that goes afterwards.
    :raises InputError: no release there, its work/ is gone or of another run, or `new` cannot be read.
    :raises ConfigError: the release's choice is made shard by shard, or its settings name code that may not run.
    """
    release = find_release(against)
    manifest = release.manifest()
    old, _, old_work = recorded(release.path)
    _check_same(release, old)
    config = _settings(manifest, new)
    with ExitStack() as stack:
        folder = work or stack.enter_context(tempfile.TemporaryDirectory(prefix="datamask-"))
        scratch = storage.join(folder, "work")
        previous = carry_on(manifest, config, old_work)
        _copy_fitted(previous, old_work, scratch)
        for name in forgotten.record_files(old_work):
            _copy(storage.join(forgotten.folder_of(old_work), name), storage.join(folder, forgotten.FOLDER, name))
        engine = stack.enter_context(Threads(config))
        measured = _measure(engine, folder, previous, old[-1].shard.name, progress)
        bare = [replace(files, filters=None, duplicates=None, copies=None, masks=None) for files in old]
        decided = _decide(engine, [*bare, *measured], scratch, progress)
        progress("choosing from both")
        both = _choose(engine, decided, scratch)
        progress("choosing from the old alone")
        alone = _choose(engine, decided[: len(old)], scratch)
        fresh = both[len(old) :]
        candidates = [read_candidates(files, config) for files in both]
        after = [_selected(files, one) for files, one in zip(both, candidates, strict=True)]
        before = [_selected(files, one) for files, one in zip(alone, candidates, strict=False)]
        before += [np.zeros(len(one), np.int64) for one in candidates[len(old) :]]
        progress("evaluating both choices")
        gain = _gain(candidates, before, after, config)
        judged = None
        if targets and sum(map(len, candidates[len(old) :])):
            judged = judge_worth(both, candidates, before[: len(old)], config, targets, judging, progress)
        return _counted(release.version, fresh, len(old), candidates, after, config, gain, judged)


# ---------------------------------------------------------------- the dry refresh


def _check_same(release: ReleaseFolder, old: Sequence[ShardFiles]) -> None:
    masks = {item["shard"]: item["keys"].get("masks") for item in release.manifest()["inputs"]}
    if masks != {files.shard.name: files.masks.key if files.masks else None for files in old}:
        raise InputError(
            f"the last run in {release.path.rsplit('/', 2)[0]} was another than that of release {release.version}; "
            "run `datamask curate` or `refresh` there again, and name its output folder"
        )


def _settings(manifest: Mapping[str, Any], new: Sequence[str]) -> Config:
    """The release's settings with the new input, and what it chose as the budget."""
    given = validate(from_release(manifest["settings"]))
    if given.selection.scope != "corpus":
        raise ConfigError("the release was chosen shard by shard, so new shards take nothing from it; select.scope")
    total = manifest["conservation"]["total"]
    asked = ("budget_tokens", "tokens_selected") if given.selection.in_tokens else ("budget_documents", "selected")
    changes = {"corpus": {"input": list(new)}, "select": {asked[0]: int(total[asked[1]])}}
    return validate(lay_settings(given.model_dump(mode="json"), changes))


def _copy_fitted(previous: Previous, old_work: str, scratch: str) -> None:
    """What the release fitted and stages look up in their own work folder: models of scorers, and topics."""
    paths = [ref.path for ref in previous.quality.scorers if ref.settings.kind == "content"] if previous.quality else []
    paths += [model_path("", previous.topics).lstrip("/")] if previous.topics else []
    for path in paths:
        if storage.exists(storage.join(old_work, path)):
            _copy(storage.join(old_work, path), storage.join(scratch, path))


def _copy(path: str, to: str) -> None:
    if not storage.exists(to):
        with storage.open_input(path) as file:
            storage.write_content(to, file.read())


def _measure(engine: Threads, folder: str, previous: Previous, last: str, progress: Tell) -> list[ShardFiles]:
    """The new shards with all that is measured of a document by itself, named so that they come after `last`.

    Of equal copies the first shard's stays, so an old document never falls to its new copy.
    """
    progress("reading, embedding and scoring what is new")
    work = storage.join(folder, "work")
    plan = engine.run(STAGES["plan"], settings=engine.config.corpus, work=work, previous=None)
    named = tuple(replace(shard, name=f"{last}+{shard.name}") for shard in plan.shards)
    run = Run(engine, replace(plan, shards=named), folder, previous)
    run.keep_to([name for name in MEASURES if name in run.stages])
    return run.measure_and_decide()


def _decide(engine: Threads, files: Sequence[ShardFiles], work: str, progress: Tell) -> list[ShardFiles]:
    """Filters and copies, decided over old and new."""
    config, found = engine.config, list(files)
    rows = sum(one.shard.rows or 0 for one in files)

    def decide(stage: str, into: str) -> None:
        outputs = engine.rounds(STAGES[stage], lambda _: False, rows, all_files=found, work=work)
        found[:] = [replace(one, **{into: output}) for one, output in zip(found, outputs, strict=True)]

    progress("finding copies")
    if config.filter.order == "before":
        decide("filter", "filters")
    if near_duplicates_wanted(config):
        decide("duplicates", "duplicates")
    if config.counts_copies or forgotten.load_requests(work):
        decide("copies", "copies")
    check_left(found, config)
    return found


def _choose(engine: Threads, files: Sequence[ShardFiles], work: str) -> list[ShardFiles]:
    """One choice over these shards at the release's budget, with their masks."""
    config, rows = engine.config, sum(one.shard.rows or 0 for one in files)
    given = {"work": work, "previous": Previous(), "log": lambda line: None}
    prices = engine.rounds(STAGES["prices"], lambda _: False, rows, all_files=list(files), **given)
    found = [replace(one, masks=mask_shard(one, prices.output, config, work)) for one in files]
    if config.filter.order == "before":
        return found
    outputs = engine.rounds(STAGES["filter"], lambda _: False, rows, all_files=found, work=work)
    return [replace(one, filters=output) for one, output in zip(found, outputs, strict=True)]


# ---------------------------------------------------------------- both choices


def _selected(files: ShardFiles, candidates: Candidates) -> np.ndarray:
    """(N,) how often each candidate of a shard is taken by its masks."""
    assert files.masks is not None
    masks = storage.read_table(files.masks.path)
    column = "repeat" if "repeat" in masks.column_names else "selected"
    return masks[column].to_numpy().astype(np.int64)[candidates.index]


def _gain(
    candidates: Sequence[Candidates], before: Sequence[np.ndarray], after: Sequence[np.ndarray], config: Config
) -> float | None:
    """The objective of the choice from both, less that of the choice from the old, both by the pool of both."""
    if sum(map(len, candidates)) > JOINT_DOCUMENTS:
        return None
    with tempfile.TemporaryDirectory(prefix="datamask-") as folder:
        problem = make_problem(gather_pool(candidates, config.selection, folder), config.select)
        values = [problem.objective.evaluate(torch.from_numpy(np.concatenate(mask))) for mask in (after, before)]
    return values[0].objective - values[1].objective


# ---------------------------------------------------------------- what is told


def _counted(
    version: str,
    fresh: Sequence[ShardFiles],
    first: int,
    candidates: Sequence[Candidates],
    after: Sequence[np.ndarray],
    config: Config,
    gain: float | None,
    judged: JudgedWorth | None,
) -> Worth:
    """candidates, after: of all shards, those of the new from `first` on."""
    own, taken = candidates[first:], after[first:]
    tokens, chosen = (np.concatenate([one.tokens for one in candidates]), np.concatenate(after))
    new = np.arange(len(tokens)) >= sum(map(len, candidates[:first]))
    quality = np.concatenate([one.quality for one in candidates])
    spent = max(float((tokens * chosen).sum()), 1.0)
    return Worth(
        release=version,
        rows=sum(files.shard.rows or 0 for files in fresh),
        lost=dict(_lost(fresh, own).most_common()),
        added=int(new.sum()),
        added_tokens=int(tokens[new].sum()),
        quality={"new": _described(quality[new]), "old": _described(quality[~new])},
        budget=float((config.select.budget_tokens or config.select.budget_documents) or 0),
        in_tokens=config.selection.in_tokens,
        pool_share=float(tokens[new].sum() / max(tokens.sum(), 1)),
        taken_share=float((tokens * chosen)[new].sum() / spent),
        taken=int((chosen[new] > 0).sum()),
        gain=gain,
        groups={column: found for column in COLUMNS if (found := _groups(fresh, own, taken, config, column, spent))},
        judged=judged,
    )


def _lost(fresh: Sequence[ShardFiles], own: Sequence[Candidates]) -> Counter[str]:
    """Rows that are none of the new documents: in quarantine, or by what filter or duplicate they fell."""
    found: Counter[str] = Counter()
    for files, candidates in zip(fresh, own, strict=True):
        assert files.index is not None
        reasons = storage.read_table(files.index.path, ["reason"])["reason"].drop_null()
        found.update({f"quarantine: {item['values']}": item["counts"] for item in pc.value_counts(reasons).to_pylist()})
        found.update(str(reason).removeprefix("filter:") for reason in candidates.reason if reason is not None)
    return found


def _described(quality: np.ndarray) -> dict[str, float]:
    if not len(quality):
        return {}
    return {"mean": float(quality.mean())} | {f"p{p}": float(np.percentile(quality, p)) for p in PERCENTILES}


def _groups(
    fresh: Sequence[ShardFiles],
    own: Sequence[Candidates],
    taken: Sequence[np.ndarray],
    config: Config,
    column: str,
    spent: float,
) -> list[GroupWorth]:
    sums: dict[str, np.ndarray] = {}
    for files, candidates, chosen in zip(fresh, own, taken, strict=True):
        if column not in shard_schema(files.shard, config).names and not (column == "topic" and files.topics):
            continue
        read = read_documents(files, config, [column])
        values = np.array([value or "(none)" for batch in read for value in batch[column].to_pylist()], object)
        sizes = candidates.tokens
        amounts = np.stack([np.ones(len(sizes)), sizes, chosen > 0, sizes * chosen], axis=1)
        for value, amount in zip(values[candidates.index], amounts, strict=True):
            sums[value] = sums.get(value, 0) + amount
    rows = []
    for value, amount in sums.items():
        documents, tokens, picked, spending = (int(number) for number in amount)
        rows.append(GroupWorth(value, documents, tokens, picked, spending, spending / spent))
    return sorted(rows, key=lambda row: (-row.chosen_tokens, -row.tokens, row.value))
