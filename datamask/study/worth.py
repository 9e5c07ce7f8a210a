"""What a new dump or data set adds to a curated corpus, before anybody trains on it.

    found = find_worth(["dumps/new.parquet"], against="out/mine", targets=["tasks/*.jsonl"])
    found.added, found.taken_share, found.gain, found.says

It is a refresh that publishes nothing. The new rows are read, embedded and scored by what the release fitted, in a work
folder of their own. Then copies are found, and two choices are made at the release's own budget by the same search:
from old and new, and from the old alone. The release's folder stays as it was. Of its texts only those are read that
may be copies, and with targets those that judges read.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from datamask import storage
from datamask.carried_on import carry_on
from datamask.config import Config, lay_settings, over_release, validate
from datamask.corpus.columns import canonical
from datamask.corpus.plan import Plan
from datamask.corpus.read import documents_at, read_documents, shard_schema
from datamask.encoders.topics import model_path
from datamask.engine import Threads
from datamask.errors import ConfigError, InputError, several
from datamask.filter import forgotten
from datamask.pipeline import STAGES
from datamask.release.release_folder import find_release
from datamask.report.formatting import Table, count, markdown, number, percent
from datamask.report.page import write_pages
from datamask.run import Previous, Run
from datamask.selection.calibration import make_problem
from datamask.selection.candidates import Candidates, gather_pool, group_of, read_candidates
from datamask.selection.stage import JOINT_DOCUMENTS
from datamask.stages import ShardFiles, recorded, required
from datamask.study.inference import Draw, Trial
from datamask.study.run import MOST_BYTES, Settings, Tell, check_settings, judges_of, read_choices, without_overlap
from datamask.study.targets import SHARE as SPOILED
from datamask.study.targets import Target, bytes_of, cut_texts, read_targets, rows_of
from datamask.study.verdict import controls

MEASURES = ("index", "embed", "topics", "score", "signatures", "atoms", "leaks")  # of each document by itself
DECISIONS = {"filter", "duplicates", "copies"}  # over old and new, before the choice
CHOICE = {"prices", "mask"}
COLUMNS = ("topic", "language")  # by which what is taken is told
PASSED_OVER = 0.5  # a choice that takes less than this part of the new documents' share of all tokens leaves them
PERCENTILES = (10, 50, 90)
SHOWN = 16  # topics and languages in a table, the largest
WITH, WITHOUT = "with the new", "without"
SHARE = 0.2  # of the bytes read with the new that are new
REPEATED = 4  # times that a new text is read at most: so often repeats teach like new text (arXiv 2305.16264)
READS = 4  # of either, in pairs that have the rest of the choice in common
NETWORK = "tiny"  # its size; it begins with half of the text that the choice leaves, of which no draw takes any
DRAWN = 3  # times the tokens read of the choice, of the documents that random draws are taken from


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
        return {**asdict(self), "says": self.says}


def find_worth(
    new: str | Sequence[str],
    against: str,
    targets: str | Sequence[str] = (),
    judging: Settings = Settings(),
    work: str | None = None,
    progress: Tell = lambda line: None,
) -> Worth:
    """What the documents of `new` would add to the release of `against`.

    :param new: files, folders or globs.
    :param against: an output folder of `datamask curate`, whose work/ is still there.
    :param targets: files of texts that judges read after the release's choice with the new documents and without.
    :param judging: what judges read: see `judge_worth`.
    :param work: a folder for what is computed, so that a second call finds it; None: one that goes afterwards.
    :raises InputError: no release there, its work/ is gone or of another run, or `new` or a target cannot be read.
    :raises ConfigError: the release's choice is made shard by shard, its settings name code that may not run, or what
        judges read is no setting of theirs.
    """
    check_settings(judging)
    new, targets = storage.paths_of(new), storage.paths_of(targets)
    asked = read_targets(storage.expand_patterns(targets), judging.target_bytes, judging.seed) if targets else []
    release = find_release(against)
    manifest = release.manifest()
    old, _, old_work = recorded(release.path)
    masks = {item["shard"]: item["keys"].get("masks") for item in manifest["inputs"]}
    if masks != {files.shard.name: files.masks.key if files.masks else None for files in old}:
        raise InputError(
            f"the last run in {release.path.rsplit('/', 2)[0]} was another than that of release {release.version}; "
            "run `datamask curate` or `refresh` there again, and name its output folder"
        )
    config = _settings(manifest, new)
    with ExitStack() as stack:
        folder = work or stack.enter_context(tempfile.TemporaryDirectory(prefix="datamask-"))
        scratch = storage.join(folder, "work")
        previous = carry_on(manifest, config, old_work)
        _copy_fitted(previous, old_work, scratch)
        engine = stack.enter_context(Threads(config))
        measured = _measure(engine, folder, previous, old[-1].shard.name, progress)
        bare = [replace(files, filters=None, duplicates=None, copies=None, masks=None) for files in old]
        late = {"filter"} if config.filter.order == "after" else set[str]()
        progress("finding copies")
        decided = _decide(engine, folder, [*bare, *measured], DECISIONS - late)
        progress("choosing from both")
        both = _decide(engine, folder, decided, CHOICE | late)
        progress("choosing from the old alone")
        alone = _decide(engine, folder, decided[: len(old)], CHOICE | late)
        candidates = [read_candidates(files, config) for files in both]
        after, before = _taken(both, candidates), _taken(alone, candidates)
        before += [np.zeros(len(one), np.int64) for one in candidates[len(old) :]]
        progress("evaluating both choices")
        choices = _Choices(both, candidates, after, before, len(old), config)
        gain, judged = choices.gain(), None
        if asked and sum(map(len, candidates[len(old) :])):
            judged = judge_worth(both, candidates, before[: len(old)], config, asked, judging, progress)
        return choices.told(release.version, gain, judged)


# ---------------------------------------------------------------- the dry refresh


def _settings(manifest: Mapping[str, Any], new: Sequence[str]) -> Config:
    """The release's settings with the new input, and what it chose as the budget."""
    remedy = "worth reads a release whose code an installed package registers: docs/extending.md"
    given = validate(over_release(manifest["settings"], remedy=remedy))
    if given.selection.scope != "corpus":
        raise ConfigError("the release was chosen shard by shard, so new shards take nothing from it; select.scope")
    total = manifest["conservation"]["total"]
    asked = ("budget_tokens", "tokens_selected") if given.selection.in_tokens else ("budget_documents", "selected")
    changes = {"corpus": {"input": list(new)}, "select": {asked[0]: int(total[asked[1]])}}
    return validate(lay_settings(given.model_dump(mode="json"), changes))


def _copy_fitted(previous: Previous, old_work: str, scratch: str) -> None:
    """What stages look up in their own output folder: models of scorers, topics, and what must be forgotten."""
    paths = [ref.path for ref in previous.quality.scorers if ref.settings.kind == "content"] if previous.quality else []
    paths += [model_path("", previous.topics).lstrip("/")] if previous.topics else []
    pairs = [(storage.join(old_work, path), storage.join(scratch, path)) for path in paths]
    record, to = forgotten.folder_of(old_work), forgotten.folder_of(scratch)
    pairs += [(storage.join(record, name), storage.join(to, name)) for name in forgotten.record_files(old_work)]
    for path, copied in pairs:
        if storage.exists(path) and not storage.exists(copied):
            storage.write_content(copied, storage.read_content(path))


def _measure(engine: Threads, folder: str, previous: Previous, last: str, progress: Tell) -> list[ShardFiles]:
    """The new shards with all that is measured of a document by itself, named so that they come after `last`.

    Of equal copies the first shard's stays, so an old document never falls to its new copy.
    """
    progress("reading, embedding and scoring what is new")
    plan = engine.run(STAGES["plan"], settings=engine.config.corpus, work=storage.join(folder, "work"), previous=None)
    named = tuple(replace(shard, name=f"{last}+{shard.name}") for shard in plan.shards)
    run = Run(engine, replace(plan, shards=named), folder, previous)
    run.keep_to([name for name in MEASURES if name in run.stages])
    return run.measure_and_decide()


def _decide(engine: Threads, folder: str, files: Sequence[ShardFiles], stages: Collection[str]) -> list[ShardFiles]:
    """These stages' decisions over these shards, of which all else is there."""
    run = Run(engine, Plan(()), folder, files=files)
    run.keep_to(stages, alone=True)
    return run.measure_and_decide()


# ---------------------------------------------------------------- both choices


def _taken(shards: Sequence[ShardFiles], candidates: Sequence[Candidates]) -> list[np.ndarray]:
    """Of each shard (N,) how often each of its candidates is taken by its masks."""
    taken = []
    for files, own in zip(shards, candidates, strict=False):
        masks = storage.read_table(required(files.masks).path)
        column = "repeat" if "repeat" in masks.column_names else "selected"
        taken.append(masks[column].to_numpy().astype(np.int64)[own.index])
    return taken


@dataclass(frozen=True)
class _Choices:
    """The choice from both and that from the old alone, by shard: the old, then the new from `first` on."""

    shards: Sequence[ShardFiles]  # as the choice from both left them
    candidates: Sequence[Candidates]
    after: Sequence[np.ndarray]  # how often the choice from both takes each candidate
    before: Sequence[np.ndarray]  # the same of the choice from the old
    first: int
    config: Config

    def gain(self) -> float | None:
        """The objective of the choice from both, less that of the choice from the old, both by the pool of both."""
        if sum(map(len, self.candidates)) > JOINT_DOCUMENTS:
            return None
        with tempfile.TemporaryDirectory(prefix="datamask-") as folder:
            group = group_of(self.shards, self.candidates, self.config)
            problem = make_problem(gather_pool(group, self.config.selection, folder), self.config.select)
            masks = (torch.from_numpy(np.concatenate(mask)) for mask in (self.after, self.before))
            after, before = (problem.objective.evaluate(mask).objective for mask in masks)
        return after - before

    def told(self, version: str, gain: float | None, judged: JudgedWorth | None) -> Worth:
        tokens, chosen = (np.concatenate([one.tokens for one in self.candidates]), np.concatenate(self.after))
        new = np.arange(len(tokens)) >= sum(map(len, self.candidates[: self.first]))
        quality = np.concatenate([one.quality for one in self.candidates])
        spent, select = max(float((tokens * chosen).sum()), 1.0), self.config.select
        return Worth(
            release=version,
            rows=sum(files.shard.rows or 0 for files in self.shards[self.first :]),
            lost=dict(self._lost().most_common()),
            added=int(new.sum()),
            added_tokens=int(tokens[new].sum()),
            quality={"new": _described(quality[new]), "old": _described(quality[~new])},
            budget=float((select.budget_tokens or select.budget_documents) or 0),
            in_tokens=self.config.selection.in_tokens,
            pool_share=float(tokens[new].sum() / max(tokens.sum(), 1)),
            taken_share=float((tokens * chosen)[new].sum() / spent),
            taken=int((chosen[new] > 0).sum()),
            gain=gain,
            groups={column: found for column in COLUMNS if (found := self._groups(column, spent))},
            judged=judged,
        )

    def _lost(self) -> Counter[str]:
        """Rows that are none of the new documents: in quarantine, or by what filter or duplicate they fell."""
        found: Counter[str] = Counter()
        for files, own in zip(self.shards[self.first :], self.candidates[self.first :], strict=True):
            reasons = storage.read_table(required(files.index).path, ["reason"])["reason"].drop_null()
            found.update(f"quarantine: {reason}" for reason in reasons.to_pylist())
            found.update(str(reason).removeprefix("filter:") for reason in own.reason if reason is not None)
        return found

    def _groups(self, column: str, spent: float) -> list[GroupWorth]:
        sums: dict[str, np.ndarray] = {}
        new = zip(*(each[self.first :] for each in (self.shards, self.candidates, self.after)), strict=True)
        for files, own, chosen in new:
            if column in shard_schema(files.shard, self.config).names or (column == "topic" and files.topics):
                read = read_documents(files, self.config, [column])
                texts = [canonical(batch[column], pa.string()).to_pylist() for batch in read]
                values = np.array([value or "(none)" for each in texts for value in each], object)
                amounts = np.stack([np.ones(len(own)), own.tokens, chosen > 0, own.tokens * chosen], axis=1)
                for value, amount in zip(values[own.index], amounts, strict=True):
                    sums[value] = sums.get(value, 0) + amount
        rows = []
        for value, (documents, tokens, picked, held) in sums.items():
            rows.append(GroupWorth(value, int(documents), int(tokens), int(picked), int(held), int(held) / spent))
        return sorted(rows, key=lambda row: (-row.chosen_tokens, -row.tokens, row.value))


def _described(quality: np.ndarray) -> dict[str, float]:
    if not len(quality):
        return {}
    return {"mean": float(quality.mean())} | {f"p{p}": float(np.percentile(quality, p)) for p in PERCENTILES}


# ---------------------------------------------------------------- in words and tables


def lead(found: Worth) -> str:
    unit = "tokens" if found.in_tokens else "documents"
    gain = "" if found.gain is None else f"; the objective gains {found.gain:+.4f}"
    return (
        f"{found.says}: {several(found.added, 'document')} of {count(found.rows)} are new to release {found.release}. "
        f"A choice of {count(found.budget)} {unit} from both takes {percent(found.taken_share)} of its tokens from "
        f"them, which have {percent(found.pool_share)} of the candidates' tokens{gain}."
    )


def tables(found: Worth) -> list[Table]:
    """What became of the rows, quality, what is taken by topic and language, and what judges say."""
    lost = [[why.replace("_", " "), count(rows)] for why, rows in found.lost.items()]
    rows = [["read", count(found.rows)], *lost, ["new documents", count(found.added)]]
    heads = list(found.quality["old"])
    qualities = [
        [f"{name} documents", *(number(own[head]) for head in heads)] for name, own in found.quality.items() if own
    ]
    made: list[Table] = [("Rows read", ["", "rows"], rows)]
    made.append(("Quality, on the release's scale", ["", *heads], qualities))
    for column, groups in found.groups.items():
        rows = [
            [row.value, count(row.documents), count(row.tokens), count(row.chosen), percent(row.share, 2)]
            for row in groups[:SHOWN]
        ]
        made.append((f"Taken, by {column}", [column, "new documents", "tokens", "chosen", "of the choice"], rows))
    if found.judged:
        rows = []
        for judge in found.judged.judges:
            bits = f"{judge.difference:+.4f} ± {judge.half_width:.4f}"
            failed = ", ".join(name for name, passed in judge.controls.items() if not passed)
            each = (f"{value:+.4f}" for value in judge.targets.values())
            rows.append([judge.judge, bits, judge.says, *each, failed or "passed"])
        head = ["judge", "bits a byte", "says", *found.judged.judges[0].targets, "controls"]
        bytes_ = f"{count(found.judged.bytes)} bytes, of which {count(found.judged.new_bytes)} are new"
        made.append((f"Read with the new, minus without: {bytes_}; less is better", head, rows))
    return made


def write_worth(folder: str, found: Worth) -> dict[str, str]:
    text = markdown(f"# Worth\n\n{lead(found)}", tables(found))
    return write_pages(folder, "worth", found.as_json(), page=(".md", text))


# ---------------------------------------------------------------- what judges read
# Bits a byte of targets after the release's choice with the new documents, and without. Both are read to the same
# number of bytes; a fifth of the first is new. In a choice from old and new a small addition has a share too small for
# any judge to hear. Which of its documents are chosen, that choice says itself.


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
        for pair in range(READS):
            seed = [settings.seed, pair]
            read[WITHOUT].append(judge.read(cut_texts(old, limit, seed), kept))
            both_parts = cut_texts(old, limit - added, seed) + cut_texts(repeated, added, seed)
            read[WITH].append(judge.read(both_parts, kept))
            progress(f"{judge.name}  with the new and without {pair + 1}")
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
