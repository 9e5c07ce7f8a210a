"""What of a release or of work/ holds documents that must be forgotten (`filter.forgotten`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from datamask import storage
from datamask.config import Config, Corpus
from datamask.filter.forgotten import (
    DONE,
    FOLDER,
    REASON,
    Requests,
    digest_of,
    is_pending,
    load_requests,
    read_done,
)
from datamask.pipeline import STAGES
from datamask.release.manifest import data_paths
from datamask.release.release_folder import ReleaseFolder
from datamask.text.text_hashes import text_hashes

KEY = re.compile(r"[0-9a-f]{16}")  # of an output, in the name of its file
# of a shard in work/: what holds its documents, or what was measured of them
FOLDERS = ("corpus", "languages", "index", "embeddings", "scores", "signatures", "atoms", "leaks")
SHARED = ("parts", "staging", "rounds", "tmp")  # of several shards; made again


def forgotten_rows(release: ReleaseFolder, requests: Requests) -> Iterator[tuple[str, int, Mapping[str, str]]]:
    """(data file, its rows that are to be forgotten, why the first is), of a release's files that hold any."""
    manifest = release.manifest()
    there = [column["name"] for column in manifest["columns"] if column["name"] in ("url", "id", "text")]
    for path in sorted(data_paths(manifest)):
        found = np.zeros(0, np.int64)
        for batch in release.batches(path, there):
            table = pa.Table.from_batches([batch])
            hashes = pa.array(text_hashes(batch["text"].cast(pa.string())), pa.binary(16))
            entry = requests.match(table.drop_columns(["text"]).append_column("text_hash", hashes))
            found = np.append(found, entry[entry >= 0])
        if len(found):
            yield path, len(found), requests.told(found[:1])[found[0]]


def holds_forgotten(out: str, release: ReleaseFolder) -> bool:
    """Whether a data file of a release holds what the output folder's record says must be forgotten."""
    requests = load_requests(storage.join(out, "work"))
    return requests is not None and any(forgotten_rows(release, requests))


def must_forget(out: str, latest: ReleaseFolder) -> bool:
    """Whether a release must be made without what was recorded since the last one, or, where `latest` was rolled back,
    without what that one holds."""
    rolled_back = read_done(out).get("version", latest.version) != latest.version
    return is_pending(out) or (rolled_back and holds_forgotten(out, latest))


def inputs_with_keys(manifest: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], set[str]]]:
    """Each shard of a release's `inputs`, and the keys of its files in work/."""
    corpus = manifest["settings"]["corpus"]
    reading = Config(corpus=Corpus(columns=corpus["columns"], drop=corpus["drop"]))
    for item in manifest["inputs"]:  # a file that is not parquet has been converted
        yield item, {STAGES["convert"].key(reading, item["fingerprint"]), *item["keys"].values()}


def work_files(manifest: Mapping[str, Any], work: str, paths: Iterable[str]) -> list[str]:
    """Those of these files of work/ that hold or measure documents, but for shards of which the latest release says
    that nothing in them must be forgotten; none once `mark_clean` was called.

    :param manifest: of the latest release.
    """
    out = work.rsplit("/", 1)[0]
    done = read_done(out)
    if done.get("digest") != digest_of(out) or done.get("cleaned"):
        return []
    clean: set[str] = set()
    for item, keys in inputs_with_keys(manifest) if done["version"] == manifest["version"] else ():
        key = item["keys"].get("copies")  # none: the record named nothing when the release was made, nor since
        made = key and storage.find_output(storage.join(work, "copies", f"{item['shard']}-{key}.parquet"), key)
        if not key or (made and not made.facts["filtered"].get(REASON)):
            clean |= keys
    inside = [(path, *path[len(work) + 1 :].partition("/")[::2]) for path in paths]
    found = [path for path, folder, name in inside if folder in FOLDERS and clean.isdisjoint(KEY.findall(name))]
    return found + [path for path, folder, _ in inside if folder in SHARED and found]


def mark_clean(out: str) -> None:
    """Notes that older releases and work/ were cleaned of what is to be forgotten."""
    done = read_done(out)
    if done.get("digest") == digest_of(out) and done:
        storage.write_json(storage.join(out, FOLDER, DONE), {**done, "cleaned": True})
