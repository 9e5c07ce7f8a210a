"""JSON lines, CSV, Arrow and text files to canonical parquet: once, one row per line, under our column names.

Two passes over the file: the first finds every column and its type, the second writes. Memory is one batch of lines.
A field whose values have no common type (text here, an object there) becomes JSON text.
"""

from __future__ import annotations

import posixpath
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from datamask.config import Config
from datamask.corpus import arrow, delimited, web
from datamask.corpus.columns import Column, recognise, union_schema, with_fields, with_values
from datamask.corpus.inspect import content_of
from datamask.corpus.json_lines import MAX_LINE_BYTES, json_columns, json_rows, to_json
from datamask.corpus.plan import Part, Shard
from datamask.corpus.project import EXTRA, Rows, excerpt, project
from datamask.corpus.streams import damage, open_stream
from datamask.corpus.types import join_types
from datamask.errors import InputError
from datamask.pipeline import STAGES
from datamask.storage import Output, find_output, join, open_parquet, write_output

MAX_FIELDS = 1000  # distinct fields of a file; more means that data is used as field names


def convert_shard(shard: Shard, config: Config, work: str) -> Shard:
    """The shard with all parts parquet: itself after a look at each footer, or converted into `work`/corpus.

    :raises InputError: a file is damaged, is no longer what was planned, or has no text; names it.
    """
    if all(part.format == "parquet" for part in shard.parts):
        for part in shard.parts:
            with damage(part.path), open_parquet(part.path) as file:
                there = file.metadata.num_row_groups
                first, last = part.row_groups or (0, there)
                found = sum(file.metadata.row_group(group).num_rows for group in range(first, min(last, there)))
            if found != part.rows:
                raise InputError(
                    f"{part.path}: has {found} rows where {part.rows} were planned; it was changed meanwhile: run again"
                )
        return shard
    url, output_key = converted_to(shard, config, work)
    output = find_output(url, output_key) or _write(shard, config, url, output_key)
    part = Part(output.path, "parquet", shard.fingerprint, sum(part.bytes for part in shard.parts), rows=output.rows)
    return replace(shard, parts=(part,), converted_from=shard.parts)


def converted_to(shard: Shard, config: Config, work: str) -> tuple[str, str]:
    """The file that a shard is converted to, and its key."""
    output_key = STAGES["convert"].key(config, shard.fingerprint)
    return join(work, "corpus", f"{shard.name}-{output_key}.parquet"), output_key


# what the first pass finds of a part: its own columns and how they are read, and a reader of its batches
_Source = tuple[list[Column], Callable[[], Iterator[Rows]]]


def _write(shard: Shard, config: Config, url: str, output_key: str) -> Output:
    sources = [_source(part, config) for part in shard.parts]
    schema = union_schema(
        [
            (part.path, pa.schema([column.field for column in columns]))
            for part, (columns, _) in zip(shard.parts, sources, strict=True)
        ]
    )
    full = pa.schema([*schema, *EXTRA])

    rows = [0] * len(sources)  # of each part: where a converted row comes from

    def converted() -> Iterator[pa.RecordBatch]:
        for number, (part, (columns, batches)) in enumerate(zip(shard.parts, sources, strict=True)):
            for batch, reasons, excerpts in batches():
                rows[number] += batch.num_rows
                told = pa.array(reasons, pa.string()), pa.array(excerpts, pa.string())
                yield project(with_values(batch, part), columns, full, *told)

    def facts() -> dict[str, Any]:
        for part in shard.parts:  # the key stands for the content that was planned
            if content_of(part.path) != part.fingerprint:
                raise InputError(f"{part.path}: was changed while it was read; run again, when nobody writes to it")
        return {"rows_of_parts": rows}

    return write_output(url, output_key, full, converted(), facts)


def _source(part: Part, config: Config) -> _Source:
    kind = part.format.partition(".")[0]
    if kind == "jsonl":
        return _json_source(part, config)
    if kind == "txt":
        return _text_source(part, config)
    batches: Callable[[], Iterator[Rows]]
    if kind == "arrow":
        schema, batches = arrow.schema_of(part.path), lambda: arrow.batches(part)
    elif kind in ("csv", "tsv"):
        schema, batches = delimited.header(part), lambda: delimited.batches(part, schema)
    else:
        schema, batches = web.SCHEMA, lambda: web.batches(part)
    return recognise(with_fields(schema, part), config.corpus.columns, part.path, config.corpus.drop), batches


# ---------------------------------------------------------------- JSON lines


def _json_source(part: Part, config: Config) -> _Source:
    types = _types(part)
    schema = pa.schema([(name, pa.string() if type_ is None else type_) for name, type_ in types.items()])
    mixed = {name for name, type_ in types.items() if type_ is None}
    if types:
        columns = json_columns(schema, part, config.corpus)
    else:  # no line is an object: every line is quarantined
        schema = pa.schema([("text", pa.string())])
        columns = [Column(field.name, (field.name,), field.type) for field in with_fields(schema, part)]
    text = next(column.path for column in columns if column.name == "text")

    def batches() -> Iterator[Rows]:
        for rows, reasons, excerpts in json_rows(part):
            for number, row in enumerate(rows):
                if reasons[number] is None and (wrong := _wrong_text(row, text)):
                    reasons[number], excerpts[number] = wrong, excerpt(to_json(row).encode())
            arrays = []
            for field in schema:
                values: list[Any] = [row.get(field.name) for row in rows]
                if (field.name,) == text:
                    values = [value if isinstance(value, str) else None for value in values]
                elif field.name in mixed:
                    values = [v if v is None or isinstance(v, str) else to_json(v) for v in values]
                arrays.append(pa.array(values, field.type))
            yield pa.RecordBatch.from_arrays(arrays, schema=schema), reasons, excerpts

    return columns, batches


def _types(part: Part) -> dict[str, pa.DataType | None]:
    """Every field of the file with the type that holds all its values; None: there is none."""
    types: dict[str, pa.DataType | None] = {}
    widened: set[str] = set()
    for rows, _, _ in json_rows(part):
        for name in dict.fromkeys(name for row in rows for name in row):
            before = types.get(name, pa.null())
            if before is not None:
                types[name] = _common(before, _infer([row.get(name) for row in rows]))
                if types[name] != before and not pa.types.is_null(before):
                    widened.add(name)
        if len(types) > MAX_FIELDS:
            raise InputError(
                f"{part.path}: more than {MAX_FIELDS} different fields; put the varying ones into one field"
            )
    for rows, _, _ in json_rows(part) if widened else ():
        for name in widened:  # an integer beyond 2**53 is no double
            if types[name] is not None and _array([row.get(name) for row in rows], types[name]) is None:
                types[name] = None
    return types


def _wrong_text(row: Mapping[str, Any], path: tuple[str, ...]) -> str | None:
    value: Any = row
    for name in path:
        if not isinstance(value, dict) or name not in value:
            return "no_text"
        value = value[name]
    return None if value is None or isinstance(value, str) else "text_not_string"


def _infer(values: list[Any]) -> pa.DataType | None:
    """The arrow type that holds all values; None when there is none that parquet can store."""
    if all(value is None or isinstance(value, str) for value in values):  # by far the most usual
        return pa.string() if any(value is not None for value in values) else pa.null()
    found = _array(values)
    if found is None or not _storable(found.type) or _blurs_truth(values, found.type):
        return None
    return found.type


def _blurs_truth(values: Iterable[Any], type_: pa.DataType) -> bool:
    """Whether a truth value is among numbers: Arrow takes true behind a float for 1.0."""
    if pa.types.is_floating(type_):
        return any(value is True or value is False for value in values)
    there = [value for value in values if value is not None] if pa.types.is_nested(type_) else []
    if pa.types.is_struct(type_):
        return any(_blurs_truth((value.get(field.name) for value in there), field.type) for field in type_)
    return any(_blurs_truth(value, type_.value_type) for value in there)


def _array(values: list[Any], type_: pa.DataType | None = None) -> pa.Array | None:
    """The values as this type, or any; None where they have none."""
    try:
        return pa.array(values, type_)
    except (pa.ArrowException, ValueError, OverflowError, TypeError):
        return None


def _common(first: pa.DataType | None, second: pa.DataType | None) -> pa.DataType | None:
    if first is None or second is None or first == second:
        return first if second is not None else None
    try:
        type_ = join_types(first, second)
    except pa.ArrowException:
        return None
    return type_ if _storable(type_) else None


def _storable(type_: pa.DataType) -> bool:
    """A struct with very many fields is a map in disguise."""
    if pa.types.is_struct(type_):
        return type_.num_fields <= MAX_FIELDS and all(_storable(field.type) for field in type_)
    return _storable(type_.value_type) if pa.types.is_list(type_) else True


# ---------------------------------------------------------------- text


def _text_source(part: Part, config: Config) -> _Source:
    """A file is one document, called by its name."""
    names = ("text", "id", "file_path")
    schema = with_fields(pa.schema([(name, pa.string()) for name in names]), part)
    columns = [
        Column(field.name, (field.name,), field.type)
        for field in schema
        if field.name not in config.corpus.drop or field.name == "text"
    ]

    def batches() -> Iterator[Rows]:
        with damage(part.path), open_stream(part.path, part.format, part.read_as.encoding) as stream:
            data = bytes(stream.read(MAX_LINE_BYTES + 1)).removeprefix(BOM_UTF8)
        long = len(data) > MAX_LINE_BYTES
        text = pa.array([None if long else data], pa.binary()).view(pa.string())
        named = pa.array([posixpath.basename(part.path)], pa.string())
        rows = pa.RecordBatch.from_arrays([text, named, named], names=list(names))
        yield rows, ["line_too_long" if long else None], [excerpt(data) if long else None]

    return columns, batches
