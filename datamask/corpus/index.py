"""The index: a row per row read, with its id, its length, the hash that finds its copies, or why it is no document."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datamask.config import Config
from datamask.corpus.columns import is_number, numbers
from datamask.corpus.plan import Shard
from datamask.corpus.project import EXCERPT
from datamask.corpus.read import read_batches, shard_schema
from datamask.errors import ConservationError, InputError
from datamask.pipeline import STAGES
from datamask.storage import Output, find_output, join, read_table, write_output
from datamask.text.text_hashes import text_hashes

if TYPE_CHECKING:
    from datamask.models.encoder_ref import EncoderRef
    from datamask.stages import Progress, ShardFiles

FEW = 10  # rows in quarantine are too few to say that a file is read wrongly
SCHEMA = pa.schema(
    [
        ("chunk_id", pa.int64()),
        ("id", pa.string()),
        ("token_count", pa.int64()),  # null in quarantine, like all that follow but the last two
        ("characters", pa.int64()),
        ("bytes", pa.int64()),  # of the text in UTF-8
        ("text_hash", pa.binary(16)),
        ("reason", pa.string()),
        ("excerpt", pa.string()),
    ]
)

NUL_SHARE = 10  # English in UTF-16 is half NUL

# Why a row is in quarantine. A text with the odd NUL or other control character is valid and is a document.
REASONS = {
    "null_text": "the text is null",
    "empty_text": "the text is empty or white space alone",
    "nul_text": "more than a tenth of the text is NUL characters: UTF-16 or UTF-32 read as UTF-8",
    "undecodable_text": "the text is not valid UTF-8",
    "undecodable_line": "the line is not valid UTF-8",
    "lone_surrogate": "the line holds half of a UTF-16 surrogate pair (\\ud800 … \\udfff), which is no character",
    "broken_json": "the line is not valid JSON",
    "joined_objects": "the line holds several objects (one a line: jq -c . FILE)",
    "not_an_object": "the line is valid JSON but not an object",
    "no_text": "the object has no field for the text",
    "text_not_string": "the text is a number, a list or an object",
    "nested_too_deep": "the object is nested more than 50 levels deep",
    "blank_line": "the line is empty",
    "line_too_long": "the line is longer than 256 MiB",
    "no_score": "a column that a quality score is read from is null or no finite number",
    "malformed_row": "the CSV row has another number of fields than the header",
    "broken_quotes": "a quotation mark opens a field and is never closed, or text follows the one that closes it",
    "http_status": "the server's answer was not the page (a redirect, an error)",
    "not_html": "the record is no page of HTML or text",
    "no_content": "no main text was found in the page",
    "false_record": "the archive's record has a false length, or no header",
}
# of web archives, where they are usual: no sign that a file is read in the wrong way
USUAL = {"http_status", "not_html", "no_content"}
# what may be done where many rows have the reason
HINTS = {
    "undecodable_text": ". Is it in another encoding? --set corpus.encoding=cp1252",
    "undecodable_line": ". Is it in another encoding? --set corpus.encoding=cp1252",
    "nul_text": ". Is it UTF-16? --set corpus.encoding=utf-16",
    "broken_quotes": ". Are quotation marks part of the text, or escaped by a backslash? --set corpus.quotes=none, "
    "--set corpus.quotes=backslash",
    "malformed_row": ". Are its fields separated otherwise? --set 'corpus.separator=\";\"'",
}


def index_shard(
    shard: Shard, encoder: EncoderRef, config: Config, work: str, progress: Progress | None = None
) -> Output:
    """Reads every row of a (converted) shard once and publishes its index.

    A missing or null id becomes `<shard>/<chunk_id>`, the latter with at least six digits. A missing, null or negative
    token_count is counted with the encoder's tokenizer (white-space-separated words where it has none). Equal ids are
    kept: (shard, chunk_id) is what names a document.

    Facts: rows, documents, quarantined, reasons {reason: rows}, tokens, tokens_counted (rows), characters, ids_made,
    duplicate_ids (rows whose id came before in this shard).

    :raises InputError: a file is damaged or has no text; names it.
    """
    given = [shard.name, shard.fingerprint, encoder.fingerprint, _score_columns(config)]
    output_key = STAGES["index"].key(config, *given)
    url = join(work, "index", f"{shard.name}-{output_key}.parquet")
    if output := find_output(url, output_key):
        return output
    started = time.perf_counter()
    index = _Indexer(shard, encoder, config)
    output = write_output(url, output_key, SCHEMA, index.batches(progress), index.facts)
    if shard.rows is not None and output.rows != shard.rows:
        raise ConservationError(f"shard {shard.name}: {output.rows} rows read where {shard.rows} were planned")
    return replace(output, seconds=time.perf_counter() - started)


def check_quarantine(shards: Sequence[ShardFiles], config: Config) -> None:
    """Few rows of each shard are no documents; a file in another encoding or form than it is read in has many.

    :raises InputError: more than run.quarantine of a shard's rows are in quarantine, and at least FEW; says of which
        files, why, and how the first begins.
    """
    found = []
    for files in shards:
        assert files.index is not None
        usual = sum(files.index.facts["reasons"].get(name, 0) for name in USUAL)
        bad, rows = files.index.facts["quarantined"] - usual, files.index.rows - usual
        if bad < FEW or bad <= config.run.quarantine * rows:
            continue
        parts = files.shard.converted_from or files.shard.parts
        named = parts[0].path + (f" and {len(parts) - 1} more files" if len(parts) > 1 else "")
        reasons = sorted(files.index.facts["reasons"].items(), key=lambda item: -item[1])
        reasons = [(name, count) for name, count in reasons if name not in USUAL]
        told = ", ".join(f"{count:,} {name} ({REASONS.get(name, name)})" for name, count in reasons)
        table = read_table(files.index.path, ["chunk_id", "reason", "excerpt"])
        [first] = table.filter(pc.equal(table["reason"], reasons[0][0])).slice(0, 1).to_pylist()
        begins = f"; the first is row {first['chunk_id']}: {first['excerpt'][:80]!r}" if first["excerpt"] else ""
        hint = next((HINTS[name] for name, _ in reasons if name in HINTS), "")
        found.append(f"{named}: {bad:,} of {rows:,} rows are no documents: {told}{begins}{hint}")
    if found:
        more = f"\n… and {len(found) - 5:,} more" if len(found) > 5 else ""
        raise InputError(
            "\n".join(found[:5])
            + more
            + f"\nrun.quarantine allows {config.run.quarantine:.0%} of a file's rows. Mend them, or go on without "
            "these rows: --set run.quarantine=1"
        )


def why_no_text(shards: Sequence[Shard], config: Config) -> str:
    """Of a corpus without a text: the first row of its first files, and why it is no document."""
    told = []
    for shard in shards[:5]:
        path = (shard.converted_from or shard.parts)[0].path
        for batch in read_batches(shard, config, ["text", "_reason", "_excerpt"], 1):
            [row] = batch.to_pylist()
            reason = row["_reason"] or ("null_text" if row["text"] is None else "empty_text")
            begins = f" ({row['_excerpt'][:80]!r})" if row["_excerpt"] else ""
            told.append(f"\n{path}: row 0 is no document: {REASONS[reason]}{begins}")
            break
    return "the corpus has no text: every row is null, empty or broken" + "".join(told)


class _Indexer:
    """Makes the index's batches and adds up its facts."""

    def __init__(self, shard: Shard, encoder: EncoderRef, config: Config) -> None:
        self._shard = shard
        self._encoder = encoder
        self._config = config
        self._sums: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._id_hashes: list[np.ndarray] = []  # uint64 [rows of a batch]
        self._count: Any = None
        self._scores: list[str] = []  # columns that scores are read from

    def batches(self, progress: Progress | None) -> Iterator[pa.RecordBatch]:
        there = shard_schema(self._shard, self._config)  # what is not, or is no number, is told by prepare_quality
        self._scores = [
            name for name in _score_columns(self._config) if name in there.names and is_number(there.field(name).type)
        ]
        columns = list(dict.fromkeys(["text", "id", "token_count", "_reason", "_excerpt", *self._scores]))
        for batch in read_batches(self._shard, self._config, columns):
            yield self._index(batch)
            if progress:
                progress(batch.num_rows)

    def facts(self) -> Mapping[str, Any]:
        names = ("rows", "documents", "quarantined", "tokens", "tokens_counted", "characters", "ids_made")
        hashes = np.concatenate(self._id_hashes) if self._id_hashes else np.zeros(0, np.uint64)
        return {
            **{name: self._sums[name] for name in names},
            "reasons": dict(sorted(self._reasons.items())),
            "duplicate_ids": len(hashes) - len(np.unique(hashes)),
        }

    def _index(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        text = batch["text"]
        length = pc.utf8_length(text)
        blank = pc.equal(pc.utf8_length(pc.utf8_ltrim_whitespace(text)), 0)
        nul = pc.greater(pc.multiply(pc.count_substring(text, "\0"), NUL_SHARE), length)
        unscored = pa.array(np.zeros(len(text), dtype=bool))
        for name in self._scores:
            finite = pc.is_finite(numbers(batch[name]))
            unscored = pc.or_(unscored, pc.invert(pc.fill_null(finite, False)))
        reason = pc.case_when(
            pc.make_struct(pc.is_valid(batch["_reason"]), pc.is_null(text), blank, nul, unscored),
            batch["_reason"],
            *(pa.scalar(name, pa.string()) for name in ("null_text", "empty_text", "nul_text", "no_score")),
        )
        excerpt = pc.if_else(
            pc.and_(pc.is_valid(reason), pc.is_null(batch["_excerpt"])),
            pc.utf8_slice_codeunits(text, 0, EXCERPT),
            batch["_excerpt"],
        )
        good = pc.is_null(reason)
        texts = text.filter(good).to_pylist()
        tokens = self._tokens(batch["token_count"].filter(good), texts)
        characters = length.filter(good).cast(pa.int64())
        size = pc.binary_length(text.filter(good)).cast(pa.int64())
        hashes = pa.array(text_hashes(text.filter(good)), pa.binary(16))
        ids = self._ids(batch)
        self._sums.update(
            rows=batch.num_rows,
            documents=len(texts),
            quarantined=batch.num_rows - len(texts),
            tokens=pc.sum(tokens).as_py() or 0,
            characters=pc.sum(characters).as_py() or 0,
        )
        self._reasons.update(name for name in reason.to_pylist() if name)
        scattered = [_scatter(values, good) for values in (tokens, characters, size, hashes)]
        return pa.RecordBatch.from_arrays([batch["chunk_id"], ids, *scattered, reason, excerpt], schema=SCHEMA)

    def _ids(self, batch: pa.RecordBatch) -> pa.Array:
        ids = batch["id"]
        missing = pc.is_null(ids)
        made = pc.sum(missing).as_py()
        if made:
            numbers = pc.utf8_lpad(batch["chunk_id"].cast(pa.string()), 6, "0")
            ids = pc.if_else(missing, pc.binary_join_element_wise(self._shard.name, numbers, "/"), ids)
            self._sums["ids_made"] += made
        digests = [blake2b(id_.encode(), digest_size=8).digest() for id_ in ids.to_pylist()]
        self._id_hashes.append(np.frombuffer(b"".join(digests), np.uint64))
        return ids

    def _tokens(self, counts: pa.Array, texts: list[str]) -> pa.Array:
        missing = np.asarray(pc.fill_null(pc.less(counts, 0), True))
        if not missing.any():
            return counts
        numbers = np.array(pc.fill_null(counts, 0))
        numbers[missing] = self._counter()([texts[row] for row in np.flatnonzero(missing)])
        self._sums["tokens_counted"] += int(missing.sum())
        return pa.array(numbers)

    def _counter(self) -> Any:
        if self._count is None:
            if self._encoder.kind in ("column", "own"):
                self._count = _count_words
            else:
                from datamask.models.tokens import load_tokenizer  # Numba

                self._count = load_tokenizer(self._encoder).count
        return self._count


def _score_columns(config: Config) -> list[str]:
    """The corpus's columns that scores are read from."""
    return sorted({scorer.column for scorer in config.quality.measured if scorer.column is not None})


def _count_words(texts: list[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def _scatter(values: pa.Array, where: pa.Array) -> pa.Array:
    """`values` placed at the true rows of `where`, null at the others."""
    mask = np.asarray(where)
    places = np.cumsum(mask) - 1
    return values.take(pa.array(places, mask=~mask))
