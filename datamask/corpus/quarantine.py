"""Which rows are no documents, and why: they are kept apart, each with its reason."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datamask.config import Config
from datamask.corpus.columns import is_number, numbers
from datamask.corpus.plan import Shard
from datamask.corpus.read import read_batches, shard_schema
from datamask.errors import InputError
from datamask.stages import ShardFiles
from datamask.storage import read_table
from datamask.text.utf8 import utf8

FEW = 10  # rows in quarantine are too few to say that a file is read wrongly
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


def score_columns(config: Config) -> list[str]:
    """The corpus's columns that scores are read from."""
    return sorted({scorer.column for scorer in config.quality.measured if scorer.column is not None})


def reason_columns(shard: Shard, config: Config) -> list[str]:
    """The columns of numbers that a document must have: what is not there, or is none, is told by prepare_quality."""
    asked = score_columns(config)
    there = shard_schema(shard, config) if asked else pa.schema([])
    return [name for name in asked if name in there.names and is_number(there.field(name).type)]


def reasons(rows: pa.RecordBatch, scores: Sequence[str]) -> pa.Array:
    """(rows,) of REASONS why each is no document, null for those that are.

    :param rows: text, _reason, and the columns `scores` of numbers.
    """
    text = rows["text"]
    blank = pc.or_(pc.utf8_is_space(text), pc.equal(pc.binary_length(text), 0))
    nul = unscored = pa.array(np.zeros(len(text), dtype=bool))
    raw, bounds = utf8(text)
    if not raw[bounds[0] : bounds[-1]].all():  # hardly a batch: Arrow searches slowly
        nul = pc.greater(pc.multiply(pc.count_substring(text, "\0"), NUL_SHARE), pc.utf8_length(text))
    for name in scores:
        finite = pc.is_finite(numbers(rows[name]))
        unscored = pc.or_(unscored, pc.invert(pc.fill_null(finite, False)))
    return pc.case_when(
        pc.make_struct(pc.is_valid(rows["_reason"]), pc.is_null(text), blank, nul, unscored),
        rows["_reason"],
        *(pa.scalar(name, pa.string()) for name in ("null_text", "empty_text", "nul_text", "no_score")),
    )


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
