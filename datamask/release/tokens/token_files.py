"""From a release to token files, in two rounds of maps.

    write_tokens(find_release("out/mine"), "models/tokenizer", TokenOptions("nanoset"))

The first round tokenises runs of row groups and lays the documents out by the file that they go to; the second gathers
a file's documents. Where a document goes follows from a 64-bit hash of the seed, its place in the corpus and the number
of its copy, so the order is a random one of all documents, needs no memory, and is the same for any number of workers.
Every file appears whole; a run that was killed takes what is there. `tokens.json` comes last: a folder without it is
unfinished.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datamask import storage
from datamask.corpus.belonging import outside_releases
from datamask.errors import ConfigError, DamagedFileError, DatamaskError, one_line, printable
from datamask.maps import Mapper, Threads, deal_laid, gather, partition_of, places_of, records_of, rounds
from datamask.models.tokens import DocumentTokenizer
from datamask.release.data_files import REPEAT, WrittenFile, written
from datamask.release.manifest import data_paths
from datamask.release.merge import schema_of
from datamask.release.release_folder import ReleaseFolder
from datamask.release.tokens.layouts import LAYOUTS, read_documents
from datamask.release.tokens.tokenizer import FoundTokenizer, document_tokenizer, find_tokenizer, tokenizer_of
from datamask.text.utf8 import runs_of
from datamask.text.word_hashes import mix_bits

FORMAT = "datamask tokens 1"
RECORD = "tokens.json"
TOKENIZER = "tokenizer.json"
ITEM_BYTES = 64 << 20  # of rows tokenised by one call of the first round
BATCH_ROWS = 1000
THREADS = 8  # of a plain call, at most
GAMMA = np.uint64(0x9E3779B97F4A7C15)  # SplitMix64's step (Steele, Lea & Flood, OOPSLA 2014)
DOCUMENT = np.dtype([("order", "<u8"), ("length", "<u4")])  # of the first round, by order
ROW_BITS = 40  # of a document's number: its shard's number, then its row


@dataclass(frozen=True)
class TokenOptions:
    format: str  # of `LAYOUTS`
    seed: int = 0  # of the order
    end: str | None = None  # the token that ends a document; None: the tokenizer's own
    file_tokens: int = 100_000_000  # of a file, about; so many are held in memory by each worker


@dataclass(frozen=True)
class Tokens:
    """A folder of token files: what its `tokens.json` says."""

    folder: str
    release: str  # the release's key
    layout: str
    tokenizer: Mapping[str, Any]  # name; sha256 of tokenizer.json; end, the token that ends a document, and end_id
    width: str  # numpy's name of a token's type
    seed: int
    cuts: int  # files that the order was cut into
    documents: int  # a document that is taken twice is two
    tokens: int  # ends of documents included
    files: tuple[Mapping[str, Any], ...]  # path, bytes, sha256; documents and tokens of those that hold tokens
    new: bool = True  # False: all was there already

    @property
    def key(self) -> str:
        """Of all that determines the files' bytes."""
        return storage.key(FORMAT, self.release, self.layout, self.seed, self.cuts, dict(self.tokenizer))

    def record(self) -> dict[str, Any]:
        facts = {name: value for name, value in asdict(self).items() if name not in ("folder", "new")}
        return {"format": FORMAT, "key": self.key, **facts}


@dataclass(frozen=True)
class _Round:
    release: ReleaseFolder
    tokenizer: FoundTokenizer
    work: str  # what the rounds hand on
    plan: Tokens  # without its files
    parts: int = 0


def write_tokens(
    release: ReleaseFolder, tokenizer: str, options: TokenOptions, to: str | None = None, maps: Mapper | None = None
) -> Tokens:
    """The release's documents as tokens, in `<to>/<format>-<key>/`; at once where they are there already.

    No special token is added but the one that ends a document, and text never becomes one: a document that spells
    `<|endoftext|>` has it in pieces.

    :param tokenizer: a folder with tokenizer.json, such a file, or a name on the Hugging Face hub.
    :param to: where the folder is made; None: `tokens/` in the release's output folder.
    :param maps: who runs the rounds; threads of this process by default.
    :raises ConfigError: no such format; `to` must be given, or lies in a release; no token ends a document.
    :raises ModelError: the tokenizer is missing or broken.
    :raises DamagedFileError: the release is not as it should be.
    """
    if options.format not in LAYOUTS:
        raise ConfigError(f"--format {options.format}: valid are {', '.join(LAYOUTS)}", valid=LAYOUTS)
    out = release.path.removesuffix(f"/releases/{release.version}")
    if to is None and out == release.path:
        raise ConfigError(f"{release.path} lies in no output folder; say where tokens go: --to FOLDER", next=["--to"])
    to = outside_releases(to) or storage.join(out, "tokens")
    found = find_tokenizer(tokenizer, options.end)
    manifest = release.manifest()
    cuts = max(1, -(-manifest["conservation"]["total"]["tokens_selected"] // options.file_tokens))
    width = LAYOUTS[options.format].width(found.vocabulary)
    plan = Tokens("", manifest["key"], options.format, found.said, width, options.seed, cuts, 0, 0, ())
    plan = replace(plan, folder=storage.join(to, f"{options.format}-{plan.key}"))
    if done := read_record(plan.folder):
        return replace(done, new=False)
    maps = maps or Threads(min(THREADS, os.cpu_count() or 1))
    with rounds(storage.join(to, ".work"), "tokens", plan.key) as work:
        state, items = _Round(release, found, work, plan), data_runs(release)
        maps(_tokenise, state, [(n, *item[:3]) for n, item in enumerate(items)], [item[3] for item in items])
        made = maps(_gather, replace(state, parts=len(items)), range(cuts))
        files = [file for one in made for file in one]
        files += _published(plan.folder, {TOKENIZER: [found.text.encode()]})
        documents, tokens = (sum(file.get(name, 0) for file in files) for name in ("documents", "tokens"))
        done = replace(plan, documents=documents, tokens=tokens, files=tuple(files))
        storage.write_json(storage.join(plan.folder, RECORD), done.record())
    return done


def read_record(folder: str) -> Tokens | None:
    """What a folder of tokens says of itself; None: it is none, or unfinished.

    :raises DamagedFileError: its tokens.json is not one.
    """
    try:
        record = storage.read_json(storage.join(folder, RECORD))
        facts = {name: value for name, value in record.items() if name not in ("format", "key", "files")}
        found = Tokens(folder, files=tuple(record["files"]), **facts)
        [file[name] for file in found.files for name in ("path", "bytes", "sha256")]
        if record["key"] == found.key and found.layout in LAYOUTS and found.cuts > 0:
            return found
    except FileNotFoundError:
        return None
    except (AttributeError, KeyError, TypeError):
        pass
    raise DamagedFileError(f"{folder}/{RECORD} was edited or describes no tokens; remove the folder, write it anew")


def order_keys(seed: int, shard: str, rows: np.ndarray, times: np.ndarray) -> np.ndarray:
    """uint64: a key of each copy of a shard's rows; all documents are ordered by it. times: (rows,) copies of each."""
    copies, rows = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times), np.repeat(rows, times)
    start = np.frombuffer(hashlib.blake2b(f"{seed}/{shard}".encode(), digest_size=8).digest(), "<u8")
    mixed = mix_bits.py_func  # of whole arrays, without the compiler
    return mixed(mixed(start + GAMMA * rows.astype(np.uint64)) + GAMMA * copies.astype(np.uint64))


def cut_bounds(order: np.ndarray, cuts: int) -> np.ndarray:
    """int64 [cuts + 1]: where each file's documents begin in ascending keys, and the last one's end."""
    return np.searchsorted(partition_of(order, cuts), np.arange(cuts + 1))


# ---------------------------------------------------------------- first round


def data_runs(release: ReleaseFolder) -> list[tuple[str, int, int, int]]:
    """(data file, first row group, last + 1, rows) of runs of about ITEM_BYTES."""
    found = []
    for path in data_paths(release.manifest()):
        with release.opened(path) as (_, file):
            groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
        for run in runs_of(np.array([group.total_byte_size for group in groups]), ITEM_BYTES):
            found.append((path, run.start, run.stop, sum(group.num_rows for group in groups[run])))
    return found


def tokenised_rows(
    release: ReleaseFolder, tokenizer: DocumentTokenizer, path: str, first: int = 0, last: int | None = None
) -> Iterator[tuple[pa.RecordBatch, np.ndarray, np.ndarray, np.ndarray]]:
    """Documents of a run of row groups of a data file, each once, a batch after another: shard and chunk_id; how often
    each is taken, int64; its tokens int32 one document after the other, and their lengths int64 [documents]."""
    ours = REPEAT.name in schema_of(release.manifest()["settings"]).names  # else it may be a column of the corpus
    repeated = [REPEAT.name] * ours
    for batch in release.documents(path, ["text", *repeated], first, last, BATCH_ROWS):
        times = batch[REPEAT.name].to_numpy() if repeated else np.ones(batch.num_rows, np.int64)
        ids, lengths = tokenizer.all(batch["text"].to_pylist())
        yield batch, times.astype(np.int64), ids, lengths


def _tokenise(state: _Round, item: tuple[int, str, int, int]) -> None:
    """Lays out a run's documents in their order, by the file that they go to."""
    number, path, first, last = item
    place = _part(state, number)
    if storage.exists(f"{place}.documents"):  # published last
        return
    keys, lengths, ids = [], [], []
    tokenizer = document_tokenizer(state.tokenizer)
    for batch, times, found, sizes in tokenised_rows(state.release, tokenizer, path, first, last):
        order = np.empty(times.sum(), np.uint64)
        for shard in pc.unique(batch["shard"]).to_pylist():
            mine = pc.equal(batch["shard"], shard).to_numpy(zero_copy_only=False)
            rows = batch["chunk_id"].to_numpy()[mine]
            order[np.repeat(mine, times)] = order_keys(state.plan.seed, shard, rows, times[mine])
        keys.append(order)
        pieces = np.split(found.astype(state.plan.width), np.cumsum(sizes)[:-1])
        ids += [piece for piece, count in zip(pieces, times, strict=True) for _ in range(count)]
        lengths.append(np.repeat(sizes, times) + 1)
    order, sizes = np.concatenate([np.zeros(0, np.uint64), *keys]), np.concatenate([np.zeros(0, np.int64), *lengths])
    documents = records_of(DOCUMENT, order=order, length=sizes)
    ranks = np.argsort(documents["order"], kind="stable")
    documents, end = documents[ranks], np.array([state.tokenizer.end_id], state.plan.width)
    bounds = cut_bounds(documents["order"], state.plan.cuts)
    ends = np.concatenate([[0], np.cumsum(documents["length"], dtype=np.int64)])
    laid = np.concatenate([end[:0], *(piece for rank in ranks for piece in (ids[rank], end))])
    deal_laid(f"{place}.tokens", laid, ends[bounds])
    deal_laid(f"{place}.documents", documents, bounds)


def _part(state: _Round, number: int) -> str:
    return storage.join(state.work, f"part-{number:06d}")


# ---------------------------------------------------------------- second round


def _gather(state: _Round, cut: int) -> list[dict[str, Any]]:
    """The files of one cut of the order, as `tokens.json` lists them; none where no document falls into it."""
    plan, record = state.plan, storage.join(state.work, f"cut-{cut:06d}.json")
    if storage.exists(record):
        files: list[dict[str, Any]] = storage.read_json(record)
        if all(storage.size_of(storage.join(plan.folder, file["path"])) == file["bytes"] for file in files):
            return files
    parts = [_part(state, number) for number in range(state.parts)]
    documents = gather([f"{part}.documents" for part in parts], DOCUMENT, cut)
    tokens = gather([f"{part}.tokens" for part in parts], plan.width, cut)
    if not len(documents):
        return []
    ends = np.cumsum(documents["length"], dtype=np.int64)
    starts, ranks = ends - documents["length"], np.argsort(documents["order"], kind="stable")
    layout, stem, lengths = LAYOUTS[plan.layout], f"tokens_{cut:05d}", documents["length"][ranks].astype(np.int64)
    little = np.ascontiguousarray(tokens, np.dtype(plan.width).newbyteorder("<"))
    laid = (little[starts[rank] : ends[rank]].data for rank in ranks)
    whole: Iterable[bytes | memoryview] = chain([layout.header(len(tokens), plan.width)], laid)
    beside = layout.beside(len(tokens), plan.width, state.tokenizer.name)
    beside = {layout.index: layout.render_index(lengths, plan.width), **beside}
    made = {layout.tokens: whole, **{ending: [data] for ending, data in beside.items()}}
    files = _published(plan.folder, {f"{stem}{ending}": data for ending, data in made.items()})
    files[0] |= {"documents": len(documents), "tokens": len(tokens)}
    storage.write_json(record, files)
    return files


def _published(folder: str, files: Mapping[str, Iterable[bytes | memoryview]]) -> list[dict[str, Any]]:
    found: list[WrittenFile] = []
    for path, parts in files.items():
        with written(folder, path, found) as temporary, temporary.open("wb") as file:
            file.writelines(parts)
    return [file.to_json() for file in found]


# ---------------------------------------------------------------- whether tokens are what the decisions say
# Each document must be there as often as it was chosen, whole, by the tokenizer that is named, in the order of the
# seed. How often comes from decisions, its tokens from its text, tokenised again.


def verify_tokens(folder: str, release: ReleaseFolder) -> list[str]:
    """All problems of a folder of tokens of a release; []: there is none."""
    try:
        done = read_record(folder.rstrip("/"))
        if done is None:
            said = "it is unfinished, or not the folder that `datamask tokens` names at its end; run that again"
            return [f"{folder} has no {RECORD}: {said}"]
        return [printable(f"{folder}: {problem}") for problem in _problems(done, release)]
    except DatamaskError as error:
        return [one_line(error)]


def _problems(done: Tokens, release: ReleaseFolder) -> list[str]:
    manifest = release.manifest()
    if done.release != manifest["key"]:
        return [f"{RECORD} is of the release with the key {done.release}, not of {release.path}"]
    there = storage.file_sizes(done.folder).keys()
    listed = {file["path"]: file for file in done.files}
    found = [f"{path} was added" for path in sorted(there - listed.keys() - {RECORD})]
    found += [f"{path} is missing" for path in sorted(listed.keys() - there)]

    def content(path: str) -> bytes:
        data = storage.read_content(storage.join(done.folder, path))
        if hashlib.sha256(data).hexdigest() != listed[path]["sha256"] or len(data) != listed[path]["bytes"]:
            found.append(f"{path} has changed: its sha256 is not the one in {RECORD}")
        return data

    if TOKENIZER not in listed.keys() & there:
        return found
    text = content(TOKENIZER).decode("utf-8", "replace")
    tokenizer = tokenizer_of(done.tokenizer["name"], text, None, done.tokenizer["end"])
    layout = LAYOUTS[done.layout]
    if (tokenizer.said, layout.width(tokenizer.vocabulary)) != (dict(done.tokenizer), done.width):
        return [*found, f"{TOKENIZER} is not the tokenizer that {RECORD} names"]
    known, sums = listed.keys() & there, np.zeros(2, np.int64)
    for cut, wanted in enumerate(_expected(done, release, tokenizer)):
        stem = f"tokens_{cut:05d}"
        path, index = stem + layout.tokens, stem + layout.index
        if not len(wanted) and not {path, index} & there:
            continue
        if not {path, index} <= known:
            found.append(f"{path}: {len(wanted):,} documents are missing with it")
            continue
        try:
            ids, lengths = read_documents(layout, content(path), content(index), done.width)
        except DamagedFileError as error:
            found.append(f"{path}: {error}")
            continue
        found += [f"{path}: {problem}" for problem in _differences(_hashes(ids, lengths), wanted)]
        for ending, data in layout.beside(len(ids), done.width, tokenizer.name).items():
            if stem + ending in known and content(stem + ending) != data:
                found.append(f"{stem}{ending} does not describe {path}")
        if (listed[path].get("documents"), listed[path].get("tokens")) != (len(lengths), len(ids)):
            found.append(f"{RECORD}: documents or tokens of {path} are not what it holds")
        sums += len(lengths), len(ids)
    if not found and (done.documents, done.tokens) != tuple(sums):
        found.append(f"{RECORD}: documents or tokens are not what the files hold")
    return found


def _expected(done: Tokens, release: ReleaseFolder, tokenizer: FoundTokenizer) -> list[np.ndarray]:
    """Of each file uint64 [documents], hashes of the tokens: every copy of every chosen document, in order."""
    manifest = release.manifest()
    repeated = REPEAT.name in schema_of(manifest["settings"]).names
    numbers = {shard: number for number, shard in enumerate(sorted(manifest["conservation"]["shards"]))}
    orders, documents, times = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for shard, number in numbers.items():
        chosen = release.decisions(shard, ["chunk_id", "outcome", *[REPEAT.name] * repeated])
        chosen = chosen.filter(pc.equal(chosen["outcome"], "selected"))
        rows = chosen["chunk_id"].to_numpy()
        times.append(chosen[REPEAT.name].to_numpy() if repeated else np.ones(len(rows), np.int64))
        orders.append(order_keys(done.seed, shard, rows, times[-1]))
        documents.append((number << ROW_BITS) + rows)
    known = np.concatenate(documents)
    hashes = np.zeros(len(known), np.uint64)  # 0: no text was found
    loaded = document_tokenizer(tokenizer)
    for path in data_paths(manifest):
        for batch, _, ids, lengths in tokenised_rows(release, loaded, path):
            lengths, pieces = lengths + 1, np.insert(ids, np.cumsum(lengths), tokenizer.end_id)
            shards = np.array([numbers.get(shard, -1) for shard in batch["shard"].to_pylist()])
            place = places_of((shards << ROW_BITS) + batch["chunk_id"].to_numpy(), known)
            hashes[place[place >= 0]] = _hashes(pieces, lengths)[place >= 0]
    order = np.concatenate(orders)
    ranks = np.argsort(order, kind="stable")
    return np.split(np.repeat(hashes, np.concatenate(times))[ranks], cut_bounds(order[ranks], done.cuts)[1:-1])


def _hashes(ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """uint64 [documents]: of the tokens of each."""
    data, ends = memoryview(ids.astype("<i4").tobytes()), 4 * np.cumsum(lengths)
    starts = ends - 4 * lengths
    found = [hashlib.blake2b(data[a:b], digest_size=8).digest() for a, b in zip(starts, ends, strict=True)]
    return np.frombuffer(b"".join(found), "<u8")


def _differences(found: np.ndarray, wanted: np.ndarray) -> list[str]:
    if np.array_equal(found, wanted):
        return []
    here, there = Counter(found.tolist()), Counter(wanted.tolist())
    missing, strange = there - here, here - there
    twice = sum(count for value, count in strange.items() if value in there)
    said = [(missing.total(), "are missing, or other tokens"), (twice, "are there too often")]
    said.append((strange.total() - twice, "are none of the release's"))
    told = [f"{count:,} documents {what}" for count, what in said if count]
    return told or ["its documents are in another order"]
