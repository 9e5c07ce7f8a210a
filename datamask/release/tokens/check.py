"""Whether tokens on a disk are what the release's decisions say: each document as often as it was chosen, whole, by the
tokenizer that is named, in the order of the seed.

How often a document must be there comes from decisions, its tokens from its text, tokenised again.
"""

from __future__ import annotations

import hashlib
from collections import Counter

import numpy as np
import pyarrow.compute as pc

from datamask import storage
from datamask.errors import DamagedFileError, DatamaskError, one_line, printable
from datamask.maps import places_of
from datamask.release.data_files import REPEAT
from datamask.release.manifest import data_paths
from datamask.release.merge import schema_of
from datamask.release.release_folder import ReleaseFolder
from datamask.release.tokens.layouts import LAYOUTS, read_documents
from datamask.release.tokens.tokenizer import FoundTokenizer, document_tokenizer, tokenizer_of
from datamask.release.tokens.write import RECORD, TOKENIZER, Tokens, cut_bounds, order_keys, read_record, tokenised_rows

ROW_BITS = 40  # of a document's number: its shard's number, then its row


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
