"""Proof that what was published is what was read: every row of the data files beside its row in the corpus."""

from __future__ import annotations

import gzip
import io
import lzma
import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import zstandard

from datamask import storage
from datamask.config import Config, validate
from datamask.corpus.convert import convert_shard
from datamask.corpus.delimited import separator_of
from datamask.corpus.identify import identify_shard
from datamask.corpus.index import is_count
from datamask.corpus.inputs import find_inputs
from datamask.corpus.inspect import inspect_files
from datamask.corpus.plan import Part, Reading, Shard, part_of
from datamask.corpus.read import corpus_schema, read_batches
from datamask.corpus.streams import MAX_WINDOW, PiecesStream
from datamask.errors import some
from datamask.release.data_files import DataLayout
from datamask.release.personal import FIELD, PersonalRules
from datamask.release.personal import published as as_published
from datamask.release.release_folder import ReleaseFolder
from datamask.storage import open_input

if TYPE_CHECKING:
    from datamask.release.verify import Verified

EXAMPLES = 5  # rows named of those that differ
_CANNOT = (
    OSError, EOFError, ValueError, RuntimeError, NotImplementedError, LookupError, ImportError,
    lzma.LZMAError, zlib.error, zipfile.BadZipFile, zstandard.ZstdError, pa.ArrowException,
)  # fmt: skip


def compare_with_corpus(
    release: ReleaseFolder, manifest: dict[str, Any], data: Sequence[str], against: Sequence[str], found: Verified
) -> None:
    """Adds to `found` what differs. The corpus's files are recognised by their content, wherever they lie now."""
    own = manifest["settings"]["corpus"]
    filters = {name: manifest["settings"]["filter"].get(name) for name in ("languages", "identify")}
    filters["identify"] = filters["identify"] or "off"  # of a release from before there was such a setting
    config = validate({"corpus": {**own, "input": list(against)}, "filter": filters})
    published = manifest["settings"].get("release") or {}
    rules = PersonalRules.of(
        validate({"release": {n: published[n] for n in published if n.startswith("personal")}}).release
    )
    with tempfile.TemporaryDirectory(prefix="datamask-") as work:
        shards, parts, missing = _shards(manifest, list(against), config, work)
        if not missing:  # of a large file some row groups may have failed, which are not told by its path
            missing, found.uncounted = _miscounted(parts, bool(manifest["provenance"]["failed"]))
        found.problems += missing
        if missing:
            return
        converted = {
            name: identify_shard(convert_shard(shard, config, work), config, work) for name, shard in shards.items()
        }
        layout = DataLayout.of(corpus_schema(list(converted.values()), config))
        found.compared = 0
        wrong: dict[str, list[str]] = {}
        for path in data:
            for shard, tables in groupby(_runs(release, path), key=lambda run: run[0]):
                ids = _ids(release, path, shard)
                for rows, source in _beside(converted[shard], ids, (table for _, table in tables), config, layout):
                    for name, places in _differences(rows, source, layout, rules):
                        wrong.setdefault(name, []).extend(f"{shard}/{place}" for place in places)
                    found.compared += rows.num_rows
        for column, rows_ in wrong.items():
            found.problems.append(f"column {column} of {len(rows_)} rows is not the source's: {some(rows_, EXAMPLES)}")


def _shards(
    manifest: dict[str, Any], against: list[str], config: Config, work: str
) -> tuple[dict[str, Shard], list[tuple[str, Part]], list[str]]:
    """The release's shards made of the files at hand, each part and the path that it had, and what is not at hand."""
    files = find_inputs(against).files
    facts = inspect_files(files, config.corpus, work)
    paths = {fact.fingerprint: file.path for file, fact in zip(files, facts, strict=True)}
    fingerprints = {item["shard"]: item["fingerprint"] for item in manifest["inputs"]}
    parts: dict[str, list[Part]] = {shard: [] for shard in fingerprints}
    found, missing = [], []
    for source in manifest["sources"]:
        if source["fingerprint"] not in paths:
            missing.append(f"{source['path']} is not in the corpus given, or has changed since")
            continue
        part = replace(part_of(source), path=paths[source["fingerprint"]], rows=source["rows"])
        parts[source["shard"]].append(part)
        found.append((source["path"], part))
    shards = {name: Shard(name, tuple(parts[name]), fingerprint) for name, fingerprint in fingerprints.items()}
    return shards, found, sorted(set(missing))


def _miscounted(parts: Sequence[tuple[str, Part]], failed: bool) -> tuple[list[str], list[str]]:
    """Files of which fewer rows were read than a second count finds, in words; those of which it does not find all.

    :param parts: of the files, each with the path that it had. :param failed: whether some may have been left out.
    """
    of_files: dict[tuple[str, str], list[Part]] = {}
    for path, part in parts:
        of_files.setdefault((path, part.path), []).append(part)
    wrong, uncounted = [], []
    for (path, here), own in of_files.items():
        read, first = sum(part.rows or 0 for part in own), own[0]
        counted = None if failed and first.row_groups else count_rows(here, first.format, first.reading)
        if counted is None or counted < read:
            uncounted.append(path)
        elif counted > read:
            wrong.append(f"{path} has {counted:,} rows by another count, and {read:,} were read")
    return wrong, uncounted


def _runs(release: ReleaseFolder, path: str) -> Iterator[tuple[str, pa.Table]]:
    """(shard, rows) of a data file in order; a row group at a time, cut where the shard changes."""
    with release.opened(path) as (_, file):
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            table.validate(full=True)
            for shard in pc.unique(table["shard"]).to_pylist():
                yield shard, table.filter(pc.equal(table["shard"], shard))


def _ids(release: ReleaseFolder, path: str, shard: str) -> np.ndarray:
    places = storage.read_table(storage.join(release.path, path), ["shard", "chunk_id"])
    return places.filter(pc.equal(places["shard"], shard))["chunk_id"].to_numpy()


def _beside(
    shard: Shard, ids: np.ndarray, tables: Iterator[pa.Table], config: Config, layout: DataLayout
) -> Iterator[tuple[pa.Table, pa.Table | None]]:
    """Published rows and the corpus's rows of the same chunk_ids, a batch at a time; None where it has no such rows."""
    times = np.bincount(ids, minlength=max(int(ids.max()) + 1, shard.rows or 0))  # a document may be several rows
    pending = next(tables)
    for batch in read_batches(shard, config, layout.corpus.names, schema=layout.corpus, only=times > 0):
        here = batch["chunk_id"].to_numpy()
        often = times[here[0] : here[-1] + 1]
        source = pa.Table.from_batches([batch.take(pa.array(np.repeat(np.arange(len(often)), often)))])
        while pending.num_rows < source.num_rows and (more := next(tables, None)) is not None:
            pending = pa.concat_tables([pending, more])
        rows = pending.slice(0, source.num_rows)
        if source.num_rows:
            yield rows, source if rows["chunk_id"].equals(source["chunk_id"]) else None
        pending = pending.slice(source.num_rows)
    for rest in chain([pending], tables):
        if rest.num_rows:
            yield rest, None


def _differences(
    rows: pa.Table, source: pa.Table | None, layout: DataLayout, rules: PersonalRules | None
) -> Iterator[tuple[str, list[int]]]:
    """(column, chunk_ids of the rows whose value is not the source's); a text's where personal data is looked for: not
    what the rules make of the source's."""
    ids = rows["chunk_id"].to_numpy()
    if source is None:
        yield "chunk_id", ids.tolist()
        return
    if rules:
        text, held = as_published(source["text"], rules)
        source = source.set_column(source.schema.get_field_index("text"), "text", [text])
        told = rows[FIELD.name].to_pylist() if FIELD.name in rows.column_names else [None] * rows.num_rows
        wrong = np.array([counts != said for counts, said in zip(held.to_pylist(), told, strict=True)])
        if wrong.any():
            yield FIELD.name, ids[wrong].tolist()
    released = rows.column_names[: len(layout.corpus.names)]
    for name, published in zip(layout.corpus.names, released, strict=True):
        theirs, ours = source[name].combine_chunks(), rows[published].combine_chunks()
        if not theirs.equals(ours):
            differs = np.array([repr(a) != repr(b) for a, b in zip(theirs.to_pylist(), ours.to_pylist(), strict=True)])
            if name == "id":  # made where the source has none
                differs &= theirs.is_valid().to_numpy(zero_copy_only=False)
            if name == "token_count":  # counted where the source has none
                differs &= is_count(theirs).to_numpy(zero_copy_only=False)
            if differs.any():
                yield published, ids[differs].tolist()


# ---------------------------------------------------------------- rows counted a second time
# By other means than those that read them: other decoders, other libraries, the totals that a format keeps of itself,
# and lines instead of fields. What the reader does not see, verification by the same reader would not see either.


def count_rows(path: str, format_: str, reading: Reading | None) -> int | None:
    """Rows that a file has at least (of parquet, Arrow and JSON lines: exactly); None: no second way counts them."""
    kind, _, packed = format_.partition(".")
    reading = reading or Reading("utf-8")
    with open_input(path) as file:
        try:
            if kind == "parquet":  # the footer's own total, not the sum of its row groups
                return int(pq.read_metadata(file).num_rows)
            if kind == "arrow":  # the stream that a file with an index holds too; the reader goes by that index
                file.seek(8 if file.read(6) == b"ARROW1" else 0)
                return sum(batch.num_rows for batch in pa.ipc.open_stream(pa.PythonFile(file, mode="r")))
            stream = _decoded(file, packed)
            if kind in ("warc", "wet"):
                return _web_rows(stream, kind)
            if kind == "txt":
                return 1 if stream.read(1) else 0
            text = io.TextIOWrapper(stream, reading.encoding, "surrogateescape", newline=reading.line_end)
            if kind == "jsonl":
                return sum(1 for _ in text)
            rows = _rows(iter(text), reading.separator or separator_of(format_), reading.quotes)
        except _CANNOT:
            return None
    return rows - 1 if rows and reading.header else rows


def _decoded(file: Any, packed: str) -> Any:
    if packed == "gz":
        return gzip.GzipFile(fileobj=file)
    if packed == "bz2":
        return pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "bz2")
    if packed == "zst":
        decoder = zstandard.ZstdDecompressor(_zstd_dictionary(file), max_window_size=MAX_WINDOW)
        return decoder.stream_reader(file, read_across_frames=True)
    if packed == "zip":
        archive = zipfile.ZipFile(file)
        return archive.open(max(archive.infolist(), key=lambda member: member.file_size))
    return io.BufferedReader(PiecesStream(_unpacked_xz(file))) if packed == "xz" else file


def _unpacked_xz(file: Any) -> Iterator[bytes]:
    """The bytes of one stream of xz after another, and of the padding between them nothing."""
    decoder, data = None, b""
    while data or (data := file.read(1 << 16)):
        if decoder is None:
            data = data.lstrip(b"\0")
            decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ) if data else None
        if decoder:
            yield decoder.decompress(data)
            data, decoder = decoder.unused_data, None if decoder.eof else decoder


def _zstd_dictionary(file: Any) -> zstandard.ZstdCompressionDict | None:
    """What a .warc.zst carries in a skippable first frame, plain or compressed."""
    number, size = int.from_bytes(file.read(4), "little"), int.from_bytes(file.read(4), "little")
    data = file.read(size) if number == 0x184D2A5D else b""
    file.seek(0)
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        data = zstandard.ZstdDecompressor().stream_reader(data).read()
    return zstandard.ZstdCompressionDict(data) if data else None


def _web_rows(stream: Any, kind: str) -> int:
    """Records that fastwarc finds; it passes over those whose header is false."""
    from fastwarc.warc import ArchiveIterator, WarcRecordType

    wanted = WarcRecordType.conversion
    if kind == "warc":
        wanted = wanted | WarcRecordType.response | WarcRecordType.resource
    return sum(1 for _ in ArchiveIterator(stream, record_types=wanted, parse_http=False, strict_mode=False))


def _rows(lines: Iterator[str], separator: str, quotes: str) -> int:
    """Lines, less those that strictly closed quotation marks join to the line before."""
    if quotes == "none":
        return sum(1 for _ in lines)
    mark = re.escape(separator)
    inside = '[^"]*(?:""[^"]*)*'
    ends = rf"(?={mark}|\r?\n?\Z)"
    field = rf'(?:"{inside}"{ends}|(?!")[^{mark}\n]*)'
    row, opened = re.compile(rf"(?:{field}{mark})*{field}\r?\n?\Z"), re.compile(rf'(?:{field}{mark})*"{inside}\Z')
    goes_on, closed = re.compile(rf"{inside}\Z"), re.compile(rf'{inside}"{ends}(?:{mark}|\r?\n?\Z)')
    rows = joined = 0  # joined: lines of a row that is still open
    for line in lines:
        if quotes == "backslash":
            line = re.sub(r"\\.", "xx", line)
        if joined:
            if goes_on.match(line):
                joined += 1
                continue
            if found := closed.match(line):
                rest = line[found.end() :]
                if row.match(rest):
                    rows, joined = rows + 1, 0
                    continue
                if opened.match(rest):
                    joined += 1
                    continue
            rows, joined = rows + joined, 0  # it was no row of several lines
        if opened.match(line) and not row.match(line):
            joined = 1
        else:
            rows += 1
    return rows + joined
