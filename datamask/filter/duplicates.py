"""The stage that finds near-duplicates across all shards: candidates, verification, decisions.

The work is `rounds` of maps; here are the reduces between them. The caller holds a range of the documents and its pairs
while it looks for what pairs connect (`connected`); a worker a partition of the samples, a part of the pairs, or the
texts of few candidates at a time. Disk, for the time of the stage: the candidates' texts. Samples (0.6 kB a document)
and decisions stay for the next run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from datamask import storage
from datamask.config import Config
from datamask.errors import InputError
from datamask.filter import decisions
from datamask.filter import duplicate_rounds as rounds
from datamask.filter.connected import ConnectedDocuments
from datamask.filter.duplicate_candidates import part_of
from datamask.filter.duplicate_rounds import JOINED, KEPT, ComparedShard, Fact, Group, Loaded, Searching
from datamask.filter.postings import PARTITION, RANGES
from datamask.filter.signatures import sign_shard
from datamask.filter.verify_pairs import DuplicateRules, room_of
from datamask.maps import Mapper, gather, groups, here, keeping, parts_of, write_array, write_joined
from datamask.maps import rounds as shared_folder
from datamask.pipeline import STAGES
from datamask.stages import ShardFiles, cached_outputs, keep_outputs, recorded, required
from datamask.storage import Output

OFF = 2.0  # a threshold that nothing reaches
LAYOUT = 43  # of the rounds' files: what is left of an interrupted run by another one is not read
MOST = 1 << 40  # documents
STAGE = STAGES["duplicates"]
DECISIONS = f"decisions-{STAGE.version}"  # of the run before


def wanted(config: Config) -> bool:
    """Whether the settings ask for this stage at all."""
    settings = config.duplicates
    return config.selection.semantic_duplicates is not None and bool(settings.jaccard or settings.containment)


def find_duplicates(all_files: Sequence[ShardFiles], config: Config, work: str, maps: Mapper = here) -> list[Output]:
    """A file per shard, in the order given, of its documents that are duplicates of one that stays.

    Each has been compared with that one on the whole texts. With `filter.order: before`, only what passes the filters
    is compared. A shard's file is named by its own rows, so a new shard that changes nothing in another leaves it as
    it was.

    :param maps: who runs the rounds.
    :raises InputError: `duplicates.against` is no curation.
    :raises StorageError: there is no room for the scratch files.
    """
    ordered = sorted(all_files, key=lambda files: files.shard.name)
    earlier = [item for place in config.duplicates.against for item in _earlier(place, work)]
    key = _key(ordered, earlier, config)
    made = storage.join(work, "duplicates")
    if (found := cached_outputs(all_files, made, key)) is not None:
        return found
    with shared_folder(work, "duplicates", f"{key}-{LAYOUT}") as folder:
        search = _Search(ordered, earlier, config, work, folder, maps)
        with keeping(work, "duplicates", key, search.names()) as kept:
            outputs, facts = search.run(kept)
    return keep_outputs(all_files, outputs, made, key, facts)


# ---------------------------------------------------------------- files


def _key(ordered: Sequence[ShardFiles], earlier: Sequence[tuple[str, ShardFiles, Config]], config: Config) -> str:
    inputs = []
    for files in ordered:
        filters = files.filters.key if files.filters and config.filter.order == "before" else None
        inputs.append([files.shard.name, required(files.signatures).key, required(files.scores).key, filters])
    against = [[place, f.shard.fingerprint, required(f.masks).key] for place, f, _ in earlier]
    return STAGE.key(config, inputs, against)


# ---------------------------------------------------------------- search


def _earlier(place: str, work: str) -> list[tuple[str, ShardFiles, Config]]:
    """The shards of an earlier curation, signed, with the settings they are read by."""
    all_files, config, _ = recorded(place)
    found = []
    for files in sorted(all_files, key=lambda files: files.shard.name):
        if files.masks is None:
            raise InputError(f"{place}: shard {files.shard.name} has no mask, so nothing can be compared with it")
        signatures = files.signatures
        if signatures is None or not storage.exists(signatures.path):
            signatures = sign_shard(files.shard, config, work)
        found.append((place, replace(files, signatures=signatures), config))
    return found


class _Search:
    """The reduces."""

    def __init__(
        self,
        ordered: Sequence[ShardFiles],
        earlier: Sequence[tuple[str, ShardFiles, Config]],
        config: Config,
        work: str,
        folder: str,
        maps: Mapper,
    ) -> None:
        sources = [ComparedShard(n, files, own, place) for n, (place, files, own) in enumerate(earlier)]
        sources += [ComparedShard(len(earlier) + n, files, None) for n, files in enumerate(ordered)]
        places = [*groups([files for _, files, _ in earlier])]
        places += [tuple(len(earlier) + place for place in group) for group in groups(ordered)]
        self.maps, self.sources = maps, sources
        self.groups: list[Group] = [(n, tuple(sources[place] for place in group)) for n, group in enumerate(places)]
        self.rows = [sum(source.files.shard.rows or 0 for source in group) for _, group in self.groups]
        total = sum(required(source.files.signatures).rows for source in sources)
        settings = config.duplicates
        state = Searching(
            config,
            work,
            folder,
            "",
            (),
            parts_of(total * 64, PARTITION),
            DuplicateRules(settings.jaccard or OFF, settings.containment or OFF),
            pool=required(ordered[0].scores).facts.get("pool") if ordered else None,
        )
        self.state = replace(state, keys=tuple(_group_key(group, state) for _, group in self.groups))

    def names(self) -> list[str]:
        """Of the files that are kept."""
        return [DECISIONS, *(name.format(key) for key in self.state.keys for name in KEPT)]

    def run(self, kept: str) -> tuple[list[Output], dict[str, Any]]:
        decided = storage.join(kept, DECISIONS)
        self.state = replace(self.state, kept=kept, earlier=decided if storage.exists(decided) else None)
        self._load()
        pairs, letters = self._candidates()
        self._decide(letters)
        outputs = [found for group in self.maps(rounds.write_decisions, self.state, *self._own()) for found in group]
        return outputs, {"compared": self.state.count - self.state.fixed, "candidates": pairs}

    def _own(self) -> tuple[list[Group], list[int]]:
        """The groups of the run's own shards, and their rows."""
        own = [(group, rows) for group, rows in zip(self.groups, self.rows, strict=True) if not group[1][0].place]
        return [group for group, _ in own], [rows for _, rows in own]

    # ------------------------------------------------------------ documents

    def _load(self) -> None:
        """:raises InputError: there are more documents than can be numbered."""
        loaded = self.maps(rounds.load_documents, self.state, self.groups, self.rows)
        counts = [group.documents for group in loaded]
        count = sum(counts)
        if count >= MOST:
            raise InputError(
                f"duplicates are looked for among fewer than {MOST:,} documents at once, and here are {count:,}: "
                "curate parts of the corpus one after the other, each with duplicates.against the outputs before it"
            )
        first = tuple(np.cumsum([0, *counts[:-1]]).tolist())
        shards = tuple(group[0].number for _, group in self.groups)  # a document's is its place among its group's
        joined = [Fact(name, count, shards if name == "shard" else ()) for name in JOINED]
        self.maps(rounds.join_facts, self.state, joined)
        write_array(self.state.at("names") + ".npy", np.array([source.name for source in self.sources]))
        keys = [required(source.files.signatures).key for source in self.sources]
        write_array(self.state.at("source") + ".npy", np.array(keys, "S16"))
        fixed = sum(count for count, (_, group) in zip(counts, self.groups, strict=True) if group[0].place)
        # rounded, so that what was decided holds while little comes in
        deviation = float(f"{_deviation(loaded):.2g}")
        self.state = replace(self.state, first=first, count=count, fixed=fixed, quality_deviation=deviation)

    # ------------------------------------------------------------ pairs

    def _candidates(self) -> tuple[int, int]:
        """How many pairs are worth reading, and how many letters the texts of each part's have together."""
        partitions = range(self.state.partitions)
        self.maps(rounds.pair_candidates, self.state, partitions)
        self.maps(rounds.gather_pairs, self.state, partitions)
        self.maps(rounds.exchange_samples, self.state, partitions)
        estimated = self.maps(rounds.estimate_similarity, self.state, partitions)
        self.state = replace(self.state, blocks=tuple(int(found.read("blocks")[0][0]) for found in estimated))
        kind = np.int32 if self.state.count < 1 << 31 else np.int64
        copies = self._connected("copied").column(lambda first, last: np.arange(first, last, dtype=kind))
        write_joined(self.state.at("copies") + ".npy", copies, self.state.count)
        self.maps(rounds.mark_templates, self.state, partitions)
        chosen = self.maps(rounds.choose_pairs, self.state, partitions)
        return sum(len(found.read("pairs")[0]) for found in chosen), sum(
            int(found.read("letters")[0][0]) for found in chosen
        )

    def _connected(self, dealt: str) -> ConnectedDocuments:
        """What the pairs connect that the parts have dealt under this name."""
        urls = [self.state.at(dealt, part) for part in range(self.state.partitions)]
        return ConnectedDocuments(self.state.at("ranges", dealt), urls, self.state.count)

    # ------------------------------------------------------------ decisions

    def _decide(self, letters: int) -> None:
        connected, parts = self._connected("linked"), range(-(-letters // room_of(letters)))
        if not connected.count:
            return
        pieces = range(parts_of(2 * connected.count, decisions.PIECE))
        self.state = replace(self.state, decided=len(parts), pieces=len(pieces))
        column = connected.column(
            lambda first, last: np.full(last - first, -1, np.int32), lambda lowest: part_of(lowest, len(parts))
        )
        write_joined(self.state.at("part") + ".npy", column, self.state.count)
        self.maps(rounds.group_pairs, self.state, range(self.state.partitions))
        self.maps(rounds.recall_decisions, self.state, parts)
        self.maps(rounds.fetch_texts, self.state, self.groups, self.rows)
        self.maps(rounds.verify_pairs, self.state, parts)
        written = [self.state.at("records", number) for number in parts]
        records = (gather(written, decisions.RECORD, piece) for piece in pieces)
        decisions.save_decisions(storage.join(self.state.kept, DECISIONS), len(pieces), records)


def _group_key(group: Sequence[ComparedShard], state: Searching) -> str:
    """Of all that `rounds.load_documents` says of a group."""
    inputs = []
    for source in group:
        files = source.files
        taken = files.masks if source.config else files.filters if state.config.filter.order == "before" else None
        inputs.append([required(files.signatures).key, required(files.scores).key, taken.key if taken else None])
    return STAGE.key(None, "load", state.partitions * RANGES, inputs)


def _deviation(loaded: Sequence[Loaded]) -> float:
    """The standard deviation of the quality that is known; 0 if none is."""
    count = sum(group.known for group in loaded)
    mean = math.fsum(group.known * group.mean for group in loaded) / max(count, 1)
    squares = math.fsum(group.squares + group.known * (group.mean - mean) ** 2 for group in loaded)
    return math.sqrt(squares / max(count, 1))
