"""The stage that finds near-duplicates across all shards: candidates, verification, decisions.

The work is `rounds` of maps; here are the reduces between them. The caller holds some 60 bytes a document and the pairs
that are read; a worker a partition of the samples, a part of the pairs, or the texts of few candidates at a time. Disk,
for the time of the stage: the candidates' texts. Samples (0.6 kB a document) and decisions stay for the next run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from datamask import storage
from datamask.config import Config
from datamask.errors import InputError
from datamask.filter import decisions
from datamask.filter import duplicate_rounds as rounds
from datamask.filter.alarm import Losses, alarm_columns, raise_alarm
from datamask.filter.duplicate_candidates import CandidatePairs, code_of, groups_of_pairs
from datamask.filter.duplicate_rounds import (
    FACTS,
    ComparedShard,
    DecidedPairs,
    Falling,
    Fetching,
    Group,
    Searching,
    facts_name,
    path_of,
    postings_name,
)
from datamask.filter.postings import PARTITION
from datamask.filter.signatures import sign_shard
from datamask.filter.verify_pairs import DuplicateRules
from datamask.filter.verify_pairs import parts_of as parts_of_groups
from datamask.maps import (
    Handed,
    Mapper,
    groups,
    hand,
    here,
    keeping,
    parts_of,
    read_arrays,
    write_array,
)
from datamask.maps import rounds as shared_folder
from datamask.pipeline import STAGES
from datamask.stages import ShardFiles, recorded
from datamask.storage import Output

OFF = 2.0  # a threshold that nothing reaches
STAGE = STAGES["duplicates"]
DECISIONS = f"decisions-{STAGE.version}"  # of the run before


def wanted(config: Config) -> bool:
    """Whether the settings ask for this stage at all."""
    settings = config.duplicates
    asked = settings.jaccard or settings.containment or settings.semantic != "off"
    return config.select.semantic_duplicates is not None and bool(asked)


def find_duplicates(all_files: Sequence[ShardFiles], config: Config, work: str, maps: Mapper = here) -> list[Output]:
    """A file per shard, in the order given, of its documents that are duplicates of one that stays.

    Each has been compared with that one on the whole texts (kind semantic, which needs a setting of its own, by their
    embeddings). With `filter.order: before`, only what passes the filters is compared. A shard's file is named by its
    own rows, so a new shard that changes nothing in another leaves it as it was.

    :param maps: who runs the rounds.
    :raises InputError: `duplicates.against` is no curation, or too much of a group falls (`duplicates.alarm`).
    :raises StorageError: there is no room for the scratch files.
    """
    ordered = sorted(all_files, key=lambda files: files.shard.name)
    earlier = [item for place in config.duplicates.against for item in _earlier(place, work)]
    key = _key(ordered, earlier, config)
    record = storage.join(work, "duplicates", f"corpus-{key}.json")
    if (found := _cached(all_files, record, work)) is not None:
        return found
    with shared_folder(work, "duplicates", key) as folder:
        search = _Search(ordered, earlier, config, work, folder, maps)
        with keeping(work, "duplicates", key, search.names()) as kept:
            outputs, facts = search.run(kept)
    by_name = {files.shard.name: output for files, output in zip(ordered, outputs, strict=True)}
    keys = {name: output.key for name, output in by_name.items()}
    storage.write_json(record, {"keys": keys, "facts": facts})
    return [_with_facts(by_name[files.shard.name], facts) for files in all_files]


# ---------------------------------------------------------------- files


def _key(ordered: Sequence[ShardFiles], earlier: Sequence[tuple[str, ShardFiles, Config]], config: Config) -> str:
    semantic = _semantic(config)
    inputs = []
    for files in ordered:
        filters = files.filters.key if files.filters and config.filter.order == "before" else None
        embedded = [_output(files.embeddings).key, config.select.seed] if semantic else []
        embedded += [files.shard.beside.fingerprint] if files.shard.beside else []  # languages are compared apart
        inputs.append([files.shard.name, _output(files.signatures).key, _output(files.scores).key, filters, *embedded])
    against = [[place, f.shard.fingerprint, _output(f.masks).key] for place, f, _ in earlier]
    return STAGE.key(config, inputs, semantic, against)


def _semantic(config: Config) -> float | None:
    return config.select.semantic_duplicates if config.duplicates.semantic != "off" else None


def _cached(all_files: Sequence[ShardFiles], record: str, work: str) -> list[Output] | None:
    try:
        held = storage.read_json(record)
    except (FileNotFoundError, ValueError):
        return None
    keys = held["keys"]
    names = [files.shard.name for files in all_files]
    outputs = [storage.find_output(path_of(name, keys[name], work), keys[name]) for name in names]
    return [_with_facts(output, held["facts"]) for output in outputs if output] if all(outputs) else None


def _with_facts(output: Output, facts: Mapping[str, Any]) -> Output:
    """With the facts of the whole corpus beside the shard's own, which alone are in its file."""
    return replace(output, facts={**output.facts, **facts})


def _output(output: Output | None) -> Output:
    if output is None:
        raise ValueError("an earlier stage has not run for this shard")
    return output


# ---------------------------------------------------------------- search


def _earlier(place: str, work: str) -> list[tuple[str, ShardFiles, Config]]:
    """The shards of an earlier curation, signed, with the settings they are read by."""
    all_files, config, _ = recorded(place)
    found = []
    for files in sorted(all_files, key=lambda files: files.shard.name):
        if files.masks is None:
            raise InputError(f"{place}: shard {files.shard.name} has no mask, so nothing can be compared with it")
        signatures = files.signatures or sign_shard(files.shard, config, work)
        if not storage.exists(signatures.path):
            signatures = sign_shard(files.shard, config, work)
        found.append((place, replace(files, signatures=signatures), config))
    return found


class _Search:
    """The reduces, and what the caller holds: arrays (N,) of the documents."""

    def __init__(
        self,
        ordered: Sequence[ShardFiles],
        earlier: Sequence[tuple[str, ShardFiles, Config]],
        config: Config,
        work: str,
        folder: str,
        maps: Mapper,
    ) -> None:
        self.ordered, self.config, self.maps = ordered, config, maps
        sources = [ComparedShard(n, files, own, place) for n, (place, files, own) in enumerate(earlier)]
        sources += [ComparedShard(len(earlier) + n, files, None) for n, files in enumerate(ordered)]
        self.sources, self.earlier = sources, len(earlier)
        places = [*groups([files for _, files, _ in earlier])]
        places += [tuple(len(earlier) + place for place in group) for group in groups(ordered)]
        self.groups: list[Group] = [
            (number, tuple(sources[place] for place in group)) for number, group in enumerate(places)
        ]
        self.rows = [sum(source.files.shard.rows or 0 for source in group) for _, group in self.groups]
        total = sum(_output(source.files.signatures).rows for source in sources)
        settings = config.duplicates
        columns, schema = alarm_columns([files.shard for files in ordered], config)
        self.state = Searching(
            config,
            work,
            folder,
            "",
            (),
            parts_of(total * 64, PARTITION),
            DuplicateRules(settings.jaccard or OFF, settings.containment or OFF),
            columns,
            schema,
            pool=_output(ordered[0].scores).facts.get("pool") if ordered else None,
        )

        self.state = replace(self.state, keys=tuple(self._group_key(group) for _, group in self.groups))

    def _group_key(self, group: Sequence[ComparedShard]) -> str:
        """Of all that `rounds.load` says of a group."""
        state, order = self.state, self.config.filter.order
        inputs = []
        for source in group:
            files = source.files
            taken = files.masks if source.config else files.filters if order == "before" else None
            columns = [] if source.config else [state.columns, files.shard.columns_key, self.config.corpus.columns]
            keys = [_output(files.signatures).key, _output(files.scores).key, taken.key if taken else None]
            inputs.append([*keys, *columns])
        return STAGE.key(None, "load", state.partitions, inputs)

    def names(self) -> list[str]:
        """Of the files that are kept."""
        return [DECISIONS, *(name(key) for key in self.state.keys for name in (facts_name, postings_name))]

    def run(self, kept: str) -> tuple[list[Output], dict[str, Any]]:
        decided = storage.join(kept, DECISIONS)
        self.state = replace(self.state, kept=kept, earlier=decided if storage.exists(decided) else None)
        self._load()
        near, cosines = self._near()
        pairs = self._candidates(near)
        falls = self._decide(pairs, near, cosines)
        alarms = self._alarms(falls["document"])
        compared = len(self.shard) - self.state.fixed
        facts = {"compared": compared, "candidates": len(pairs), "alarms": alarms}
        return self._write(falls), facts

    # ------------------------------------------------------------ documents

    def _load(self) -> None:
        counts = self.maps(rounds.load, self.state, self.groups, self.rows)
        self.ends = np.cumsum(counts)
        first = tuple((self.ends - counts).tolist())
        columns = [[] for _ in FACTS]  # type: list[list[np.ndarray]]
        for number, group in self.groups:
            shard, *others = read_arrays(self.state.facts(number), *FACTS)
            for column, part in zip(columns, [shard + np.int32(group[0].number), *others], strict=True):
                column.append(part)
        facts = {name: np.concatenate(parts) for name, parts in zip(FACTS, columns, strict=True)}
        for name in FACTS[:6]:
            write_array(self.state.at(name) + ".npy", facts[name])
        self.shard, self.chunk_id, self.windows = facts["shard"], facts["chunk_id"], facts["windows"]
        self.quality, self.stage_rows = facts["quality"], facts["rows"]
        # rounded, so that what was decided holds while little comes in
        quality_deviation = float(f"{np.nanstd(self.quality):.2g}") if np.isfinite(self.quality).any() else 0.0
        fixed = int((self.shard < self.earlier).sum())
        self.state = replace(self.state, first=first, fixed=fixed, quality_deviation=quality_deviation)

    # ------------------------------------------------------------ pairs

    def _near(self) -> tuple[np.ndarray, np.ndarray]:
        """Pairs (P, 2) of documents near by their embeddings, and their relative cosine, where that is asked for."""
        epsilon = _semantic(self.config)
        mine = slice(self.state.fixed, None)
        if epsilon is None or not len(self.shard[mine]):
            return np.zeros((0, 2), np.int64), np.zeros(0, np.float32)
        first_row = np.concatenate([[0], np.cumsum([_output(files.embeddings).rows for files in self.ordered])])
        language = np.zeros(len(self.shard[mine]), np.int64)
        if "language" in self.state.columns:
            own = [number for number, group in self.groups if not group[0].place]
            values = [read_arrays(self.state.facts(number), "group_language")[0] for number in own]
            language = np.unique(np.concatenate(values), return_inverse=True)[1]
        posed = SemanticInput(
            tuple(self.ordered),
            first_row,
            hand(
                self.state.folder,
                "embedded",
                rows=self.stage_rows[mine] + first_row[self.shard[mine] - self.earlier],
                group=language,
            ),
            epsilon,
        )
        [found] = self.maps(find_near, self.state, [posed])
        pairs, relative = found.read("pairs", "relative")
        pairs = pairs + self.state.fixed
        codes = np.unique(code_of(pairs.min(axis=1), pairs.max(axis=1)))
        for part in range(self.state.partitions):
            own = codes[codes % np.uint64(self.state.partitions) == part]
            write_array(self.state.at("near", part) + ".npy", own)
        return pairs, relative

    def _candidates(self, near: np.ndarray) -> CandidatePairs:
        partitions = range(self.state.partitions)
        self.maps(rounds.meet, self.state, partitions)
        self.maps(rounds.gather_met, self.state, partitions)
        self.maps(rounds.count_common, self.state, partitions)
        estimated = self.maps(rounds.estimate_part, self.state, partitions)
        copies = np.concatenate([found.read("copies")[0] for found in estimated])
        known = groups_of_pairs(copies[:, 0], copies[:, 1])
        write_array(self.state.at("copies") + ".npy", known.documents)
        write_array(self.state.at("copy") + ".npy", known.group)
        self.maps(rounds.count_few, self.state, partitions)
        chosen = [found.read("one", "other", "own") for found in self.maps(rounds.choose, self.state, partitions)]
        one, other, own = (np.concatenate(parts) for parts in zip(*chosen, strict=True))
        order = np.lexsort((other, one))
        return CandidatePairs(one[order], other[order], own[order])

    # ------------------------------------------------------------ decisions

    def _decide(self, pairs: CandidatePairs, near: np.ndarray, cosines: np.ndarray) -> dict[str, np.ndarray]:
        """What falls, by document."""
        if self.config.duplicates.semantic != "drop":
            near, cosines = near[:0], cosines[:0]
        known = groups_of_pairs(np.concatenate([pairs.one, near[:, 0]]), np.concatenate([pairs.other, near[:, 1]]))
        if not len(known.documents):
            names = ("document", "stays", "kind", "similarity", "cluster")
            return {name: np.zeros(0, np.float32 if name == "similarity" else np.int64) for name in names}
        part = parts_of_groups(self.windows[known.documents], known)
        of_pair = part[np.searchsorted(known.documents, pairs.one)]
        of_tie = part[np.searchsorted(known.documents, near[:, 0])]
        texts = np.array([_output(source.files.signatures).key for source in self.sources], "S16")
        items = []
        for number in range(int(part.max()) + 1):
            mine, ties, documents = of_pair == number, of_tie == number, known.documents[part == number]
            given = {"one": pairs.one[mine], "other": pairs.other[mine], "own": pairs.own[mine]}
            given |= {"tie": near[ties], "cosine": cosines[ties]}
            about = hand(
                self.state.folder,
                f"about-{number}",
                document=documents,
                letters=self.windows[documents],
                quality=self.quality[documents],
                source=texts[self.shard[documents]],
                chunk_id=self.chunk_id[documents],
            )
            items.append(DecidedPairs(number, hand(self.state.folder, f"pairs-{number}", **given), about))
        recalled = self.maps(rounds.recall, self.state, items)
        new = np.zeros(len(known.documents), bool)
        for number, found in enumerate(recalled):
            component, decided = found.read("component", "known")
            new[part == number] = ~decided[component]
        self._fetch(known.documents[new], part[new], len(items))
        judged = self.maps(rounds.judge, self.state, items)
        names = ("document", "stays", "kind", "similarity", "cluster")
        columns = zip(*(falls.read(*names, "records") for falls in judged), strict=True)
        *parts, records = (np.concatenate(parts) for parts in columns)
        decisions.save(storage.join(self.state.kept, DECISIONS), records)
        falls = dict(zip(names, parts, strict=True))
        order = np.argsort(falls["document"])
        return {name: column[order] for name, column in falls.items()}

    def _fetch(self, documents: np.ndarray, part: np.ndarray, parts: int) -> None:
        cuts = np.searchsorted(documents, [0, *self.ends.tolist()])
        items = []
        for group, start, stop in zip(self.groups, cuts[:-1], cuts[1:], strict=True):
            wanted = hand(
                self.state.folder, f"wanted-{group[0]}", document=documents[start:stop], part=part[start:stop]
            )
            items.append(Fetching(group, wanted, parts))
        self.maps(rounds.fetch, self.state, items, self.rows)

    def _alarms(self, documents: np.ndarray) -> list[str]:
        losses, settings = Losses(), self.config.duplicates
        fallen = np.zeros(len(self.shard), bool)
        fallen[documents] = True
        for (number, group), end in zip(self.groups, self.ends.tolist(), strict=True):
            if not group[0].place and self.state.columns:
                values = read_arrays(self.state.facts(number), *(f"group_{name}" for name in self.state.columns))
                for name, column in zip(self.state.columns, values, strict=True):
                    losses.add(name, column, fallen[end - len(column) : end])
        return raise_alarm(losses, settings.alarm_share, settings.alarm)

    def _write(self, falls: Mapping[str, np.ndarray]) -> list[Output]:
        shard = self.shard[falls["document"]]
        columns = {
            "shard": shard,
            "chunk_id": self.chunk_id[falls["document"]],
            "stays_shard": self.shard[falls["stays"]],
            "stays": self.chunk_id[falls["stays"]],
            "similarity": falls["similarity"],
            "kind": falls["kind"],
            "cluster_shard": self.shard[falls["cluster"]],
            "cluster": self.chunk_id[falls["cluster"]],
        }
        items = []
        for group in self.groups:
            if group[1][0].place:
                continue
            start, stop = np.searchsorted(shard, [group[1][0].number, group[1][-1].number + 1])
            own = {name: column[start:stop] for name, column in columns.items()}
            named = np.unique(np.concatenate([own["stays_shard"], own["cluster_shard"]])).tolist()
            names = {number: self.sources[number].name for number in named}
            items.append(Falling(group, hand(self.state.folder, f"falling-{group[0]}", **own), names))
        rows = [sum(source.files.shard.rows or 0 for source in item.group[1]) for item in items]
        return [output for outputs in self.maps(rounds.write, self.state, items, rows) for output in outputs]


# ---------------------------------------------------------------- by embeddings


@dataclass(frozen=True, eq=False)
class SemanticInput:
    """What is compared by its embeddings."""

    shards: tuple[ShardFiles, ...]
    first_row: np.ndarray
    documents: Handed  # rows: among those of all embeddings files; group: language
    epsilon: float


def find_near(state: Searching, item: SemanticInput) -> Handed:
    """Pairs of near embeddings: places among the documents (P, 2), and their relative cosine. On one worker."""
    from datamask.filter.semantic import near_pairs

    rows, group = item.documents.read("rows", "group")
    select = state.config.select
    with storage.scratch(state.work) as folder:
        pairs, relative = near_pairs(
            item.shards, item.first_row, rows, group, item.epsilon, select.seed, select.device, folder
        )
    return hand(state.folder, "near", pairs=pairs, relative=relative)
