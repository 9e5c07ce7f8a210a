"""The words that coverage is of: a shard's hashed n-grams, for which texts are read once, and those of a target.

    files = with_atoms(files, config, work)             # the stage `atoms`; replaces files.atoms
    counts = read_ngrams(files.atoms.path, rows)        # (n, buckets) scipy.sparse
    target = read_target(["tasks/boolq.jsonl.gz"])
    target.counts()                                     # (10,000,) of its hashed n-grams
    seen = Scan(target).look(single, document, texts)   # which documents hold 13 words in a row of it

The stage's file has a row per document: the counts of its hashed n-grams, and the name of the target's file of which it
holds a run of words, if any (`leak`). A target's files are those the judge takes: JSON lines with `question` and
`answer`, or with `text`, or plain text; .gz, .zst too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from scipy.sparse import csr_array, vstack

from datamask import storage
from datamask.config import Config, ResolvedSelect
from datamask.corpus.plan import Shard
from datamask.corpus.quarantine import score_columns
from datamask.corpus.reading import ShardReading
from datamask.corpus.text_files import holds_json_lines, json_objects, read_text_file
from datamask.errors import ConfigError, InputError
from datamask.filter.word_rows import WordRows
from datamask.pipeline import STAGES
from datamask.selection.cover.compiled import csr_of, index_type, taken_rows
from datamask.stages import Progress, ShardFiles, required, silent
from datamask.storage import Output
from datamask.text.ngrams import BUCKETS, count_ngrams, counted, hashed_words

NAMED = 20  # leaked documents that the facts name at most
BYTES = 24  # memory for each distinct n-gram of a document in a problem solved by one process (measured)
FEWEST = 20  # words: a target of fewer is refused, as they make no distribution
FREQUENT = 2000  # so many of the target's most frequent words are looked for in the pool
KNOWN = 0.5  # the pool must hold at least this share of them, each counted as often as the target has it


# -- the target: texts that the selection should cover, and how much of them the pool holds


@dataclass(frozen=True, eq=False)
class TargetTexts:
    """A target's texts. names: of its files; texts: one for each item; source: (items,) int64, places in names."""

    names: tuple[str, ...]
    texts: tuple[str, ...]
    source: np.ndarray

    def counts(self, buckets: int = BUCKETS) -> np.ndarray:
        """(buckets,) float64: counts of its hashed n-grams, all texts together.

        :raises InputError: hardly a word in them.
        """
        counts = np.asarray(count_ngrams(self.texts, buckets).sum(axis=0), np.float64).ravel()
        if counts.sum() < 2 * FEWEST - 1:
            words = int(counts.sum() + 1) // 2
            raise InputError(
                f"the target has {words or 'no'} words; a distribution of words needs {FEWEST} at least, "
                f"and some thousands to be good: name more or longer texts in select.target"
            )
        return counts

    @cached_property
    def key(self) -> str:
        """A hash of the texts and their files' names, 32 hex digits."""
        digest = blake2b(digest_size=16)
        for number, text in zip(self.source, self.texts, strict=True):
            digest.update(f"{self.names[number]}\0{text}\0".encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


def read_target(paths: Sequence[str]) -> TargetTexts:
    """The target of these files' texts. paths: files, or patterns of local ones.

    :raises InputError: a file is missing, is not text, or holds none; the message names it.
    """
    names: list[str] = []
    texts: list[str] = []
    source: list[int] = []
    for path in storage.expand_patterns(paths):
        found = [text for text in _read(path) if text.strip()]
        if not found:
            raise InputError(f"select.target: {path} holds no text; leave it out, or name one that does")
        texts += found
        source += [len(names)] * len(found)
        names.append(path.rstrip("/").rsplit("/", 1)[-1])
    target = TargetTexts(tuple(names), tuple(texts), np.array(source, np.int64))
    target.counts()  # a target without words is refused here
    return target


class Scan:
    """Looks for a target in the pool's texts: for runs of its words (leaks), and for its frequent words."""

    def __init__(self, target: TargetTexts) -> None:
        self.target = target
        self.rows = WordRows(target.texts)
        self.source = target.source[self.rows.text[self.rows.starts[:-1]]]  # of the first text with each row
        words = [single for single, _, _, _ in hashed_words(target.texts)]
        found, counts = np.unique(np.concatenate(words), return_counts=True)
        order = np.sort(np.argsort(-counts, kind="stable")[:FREQUENT])
        self.frequent, self.counts = found[order], counts[order]

    def look(self, single: np.ndarray, document: np.ndarray, texts: int) -> tuple[np.ndarray, np.ndarray]:
        """Looks through a block of texts, as `ngrams.hashed_words` yields them.

        Returns (texts,) int64, the target's file (place in `names`) of which each text holds a run of words, −1 if
        none; and (frequent,) bool, whether each frequent word is in these texts.
        """
        leak = np.full(texts, -1, np.int64)
        gram, at = self.rows.find(single, document)
        leak[document[at]] = self.source[gram]
        place = np.minimum(np.searchsorted(self.frequent, single), len(self.frequent) - 1)
        seen = np.zeros(len(self.frequent), bool)
        seen[place[self.frequent[place] == single]] = True
        return leak, seen

    def check(self, seen: np.ndarray) -> float:
        """The share of the target's frequent words, weighted by their counts, that the pool holds (`seen`).

        :raises InputError: less than `KNOWN`: the target is in a language, or of a kind, that the pool lacks.
        """
        share = float(self.counts[seen].sum() / self.counts.sum())
        if share < KNOWN:
            raise InputError(
                f"the pool's documents hold {share:.0%} of the target's words ({', '.join(self.target.names)}): it is "
                "in a language or of a kind that the pool lacks, and no choice can explain it; name another target"
            )
        return share


@dataclass(frozen=True, eq=False)
class PoolWords:
    """The n-grams of a pool and of its target, and the documents that leak the target."""

    ngrams: Any = None  # (N, J) sparse counts
    counts: np.ndarray | None = None  # (J,) of the target
    leaked: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # row numbers


def read_words(
    texts: Iterable[str] | None, atoms: Any, target: Iterable[str] | None, settings: ResolvedSelect
) -> PoolWords:
    """The n-grams of a caller's texts (or counts, `atoms`) and target, else of the settings' target.

    :raises ConfigError: texts and atoms are both given.
    :raises InputError: what is no text among them, an empty target, or one whose words the texts lack.
    """
    if texts is not None and atoms is not None:
        raise ConfigError("texts and atoms are both given; atoms are the texts' counts already")
    texts, target = _strings(texts, "texts"), _strings(target, "target")
    if target is None and settings.target:
        target = read_target(settings.target).texts
    buckets = settings.coverage.buckets
    if target is None:
        return PoolWords(count_ngrams(texts, buckets) if texts is not None else atoms)
    items = tuple(target)
    wanted = TargetTexts(("target",), items, np.zeros(len(items), np.int64))
    if texts is None:
        return PoolWords(atoms, wanted.counts(buckets if atoms is None else atoms.shape[1]))
    counts, scan = wanted.counts(buckets), Scan(wanted)
    parts, leaks, seen = [], [], np.zeros(len(scan.frequent), bool)
    for single, pair, document, count in hashed_words(texts):
        parts.append(counted(single, pair, document, count, buckets))
        leak, here = scan.look(single, document, count)
        leaks.append(leak)
        seen |= here
    scan.check(seen)
    leaked = np.flatnonzero(np.concatenate(leaks) >= 0) if leaks else np.zeros(0, np.int64)
    return PoolWords(vstack(parts, format="csr"), counts, leaked[:0] if settings.coverage.leaks else leaked)


def _strings(texts: Any, name: str) -> Iterator[Any] | None:
    """A caller's texts, each checked to be one when it is read."""
    if isinstance(texts, str):
        raise InputError(f"{name} is one text; give a list of texts")
    each = texts.to_pylist() if hasattr(texts, "to_pylist") else texts  # pyarrow's
    return None if texts is None else (_string(text, f"{name}[{number}]") for number, text in enumerate(each))


def _string(text: Any, place: str) -> Any:
    if not isinstance(text, str | bytes):
        raise InputError(f"{place} is {text!r}, which is no text; of a document without one give ''")
    return text


def _read(path: str) -> Iterable[str]:
    text = read_text_file(path, "select.target")
    if not holds_json_lines(path):
        return text.split("\n\n")
    return [_item(row, number, path) for number, row in json_objects(text, f"select.target: {path}")]


def _item(row: Mapping[str, Any], number: int, path: str) -> str:
    held = [row[name] for name in ("text", "question", "answer") if isinstance(row.get(name), str)]
    if not held:
        raise InputError(f"select.target: {path}, line {number} has neither text nor question and answer")
    return " ".join(held)


# -- the stage: a shard's n-grams


def reads_words(settings: ResolvedSelect) -> bool:
    """Whether these settings need the stage."""
    return bool({"coverage-ngrams", "coverage-target"} & set(settings.metrics))


def target_of(settings: ResolvedSelect) -> TargetTexts | None:
    """The target that these settings name, or None if no metric covers it."""
    if "coverage-target" not in settings.metrics or not settings.target:
        return None
    paths = tuple(storage.expand_patterns(settings.target))
    return _kept(tuple((path, storage.fingerprint(path)) for path in paths if storage.exists(path)), paths)


def check_target(settings: ResolvedSelect) -> None:
    """Whether the target that these settings name can be read, and whether a metric covers it.

    :raises ConfigError: none does.
    :raises InputError: see `read_target`.
    """
    if settings.target and "coverage-target" not in settings.metrics:
        raise ConfigError(
            f"select.target is explained by algorithm coverage with the part target, and {settings.metric} reads none; "
            "leave out select.target, or set select.algorithm and select.coverage.atoms to null"
        )
    target_of(settings)


@lru_cache(maxsize=2)
def _kept(fingerprints: tuple[tuple[str, str], ...], paths: tuple[str, ...]) -> TargetTexts:
    return read_target(paths)


_scan = lru_cache(maxsize=2)(Scan)


def with_atoms(files: ShardFiles, config: Config, work: str) -> ShardFiles:
    """The shard's files with `atoms`, which are made if the settings need them and they are missing."""
    return replace(files, atoms=count_shard(files.shard, config, work)) if reads_words(config.selection) else files


def count_shard(
    shard: Shard, config: Config, work: str, progress: Progress = silent, reading: ShardReading | None = None
) -> Output:
    """Publishes work/atoms/<shard>-<key>.parquet.

    Facts: documents, leaks, and unseen (places of the target's frequent words that the shard lacks).

    :raises InputError: a target's file cannot be read, or has hardly a word.
    """
    target = target_of(config.selection)
    buckets = config.select.coverage.buckets
    of_target = target.key if target else None
    key = STAGES["atoms"].key(config, shard.fingerprint, score_columns(config), of_target, buckets)
    url = storage.join(work, "atoms", f"{shard.name}-{key}.parquet")
    if found := storage.find_output(url, key):
        return found
    scan = _scan(target) if target else None
    facts: dict[str, Any] = {"documents": 0, "leaks": 0, "buckets": buckets}
    number = pa.from_numpy_dtype(index_type(buckets))
    columns = [("chunk_id", pa.int64()), ("bucket", pa.list_(number)), ("count", pa.list_(pa.uint32()))]
    schema = pa.schema([*columns, ("leak", pa.string())])
    seen = np.zeros(len(scan.frequent) if scan else 0, bool)

    def tables() -> Iterator[pa.Table]:
        nonlocal seen
        for batch in (reading or ShardReading(shard, config)).batches(["text"]):
            ids, first = batch.documents.rows["chunk_id"], 0
            for single, pair, document, count in hashed_words(batch.documents.rows["text"]):
                counts = counted(single, pair, document, count, buckets)
                names: list[str | None] = [None] * count
                if scan is not None:
                    leak, here = scan.look(single, document, count)
                    seen |= here
                    names = [scan.target.names[number] if number >= 0 else None for number in leak]
                    facts["leaks"] += int((leak >= 0).sum())
                facts["documents"] += count
                starts = pa.array(counts.indptr.astype(np.int32))
                yield pa.table(
                    [
                        ids.slice(first, count),
                        pa.ListArray.from_arrays(starts, pa.array(counts.indices.astype(index_type(buckets)))),
                        pa.ListArray.from_arrays(starts, pa.array(counts.data.astype(np.uint32))),
                        pa.array(names, pa.string()),
                    ],
                    schema=schema,
                )
                first += count
                progress(count)
        if scan is not None:
            facts["unseen"] = np.flatnonzero(~seen).tolist()

    return storage.write_output(url, key, schema, tables(), lambda: facts)


def read_ngrams(path: str, rows: np.ndarray, buckets: int = BUCKETS) -> csr_array:
    """Counts of these rows of a shard's atoms: (n, buckets) float32."""
    table = storage.read_table(path, ["bucket", "count"]).combine_chunks()
    if not table.num_rows:
        return csr_array((0, buckets), dtype=np.float32)
    column, counts = (table[name].chunk(0) for name in ("bucket", "count"))
    starts = column.offsets.to_numpy().astype(np.int64)
    index = column.values.to_numpy()[starts[0] : starts[-1]]
    value = counts.values.to_numpy()[counts.offsets[0].as_py() :][: len(index)]
    return csr_of(*taken_rows((starts - starts[0], index, value), rows, (np.int32, np.float32)), buckets)


def held_words(all_files: Sequence[ShardFiles]) -> int:
    """The number of distinct n-grams of each document, summed over all documents."""
    held = 0
    for files in all_files:
        with storage.open_parquet(required(files.atoms).path) as file:
            footer = file.metadata
            for group in range(footer.num_row_groups):
                columns = (footer.row_group(group).column(place) for place in range(footer.num_columns))
                held += sum(c.num_values for c in columns if c.path_in_schema.startswith("bucket"))
    return held


def check_room(numbers: int, settings: ResolvedSelect) -> None:
    """Checks that the atoms of all candidates fit into the free memory of this machine. numbers: in all their rows.

    :raises InputError: they do not; the message says what to do.
    """
    free = psutil.virtual_memory().available
    if numbers * BYTES > free:
        why = "a corpus of this size"
        if settings.repeat > 1:
            why = f"select.repeat = {settings.repeat}"
        elif settings.solver != "relaxation":
            why = f"solver {settings.solver}"
        elif not all(name.startswith("coverage-") for name in settings.metrics):
            why = f"algorithm {settings.metric}"
        raise InputError(
            f"coverage with {why} holds the words of all candidates in one process: about "
            f"{numbers * BYTES / 1e9:,.0f} GB, and {free / 1e9:,.0f} GB are free. Coverage alone by solver relaxation, "
            "each document once, goes by rounds and needs no more than a group of shards a worker. Or let each shard "
            "cover its own words (--set select.scope=shard), or use a machine with more memory: what is done is kept"
        )


def target_facts(all_files: Sequence[ShardFiles], settings: ResolvedSelect) -> dict[str, Any]:
    """The facts about a target: its files, the share of its words that the pool holds, the documents that leak it.

    :raises InputError: the pool lacks most of its words.
    """
    target = target_of(settings)
    if target is None:
        return {}
    scan = _scan(target)
    unseen = np.ones(len(scan.frequent), bool)
    leaked: list[dict[str, Any]] = []
    count = 0
    for files in all_files:
        atoms = required(files.atoms)
        unseen &= np.isin(np.arange(len(unseen)), atoms.facts["unseen"])
        count += int(atoms.facts["leaks"])
        if atoms.facts["leaks"] and len(leaked) < NAMED:
            table = storage.read_table(atoms.path, ["chunk_id", "leak"]).rename_columns(["chunk_id", "target"])
            named = table.filter(table["target"].is_valid()).slice(0, NAMED - len(leaked)).to_pylist()
            leaked += [{"shard": files.shard.name, **row} for row in named]
    words = int(target.counts().sum() + len(target.texts)) // 2
    return {
        "target": {
            "files": list(target.names),
            "texts": len(target.texts),
            "words": words,
            "words_in_pool": scan.check(~unseen),
            "leaks": count,
            "leaked": leaked,
        }
    }
