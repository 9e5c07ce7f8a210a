"""Our column names and the corpora's: which column is the text, the id, the language …, and the type each becomes.

Recognised without a setting (names as their makers publish them):
FineWeb, FineWeb-Edu, FineWeb-2 (the nine names below), C4 (text, timestamp, url), DCLM (text, url,
metadata.WARC-Record-ID, metadata.WARC-Date), Dolma (text, id, source, added, created, metadata), RedPajama v1 (text,
meta) and v2 (raw_content, url, date_download, cc_segment, language), HPLT (text, url, document_lang / lang, ts), and
the usual generic ones. `corpus.columns` overrides them; a dot reaches into a struct.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datamask.config import ROW_COLUMNS
from datamask.corpus.plan import Part, Value
from datamask.corpus.types import as_released, filled, is_restated, join_types, json_texts, released_type
from datamask.errors import InputError, nearest, printable

FINEWEB = pa.schema(
    [
        ("text", pa.string()),
        ("id", pa.string()),
        ("dump", pa.string()),
        ("url", pa.string()),
        ("date", pa.string()),
        ("file_path", pa.string()),
        ("language", pa.string()),
        ("language_score", pa.float64()),
        ("token_count", pa.int64()),
    ]
)

# in order of preference; our own name always comes first
ALIASES: dict[str, tuple[str, ...]] = {
    "text": ("raw_content", "content", "contents", "document", "body", "page_content", "markdown"),
    "id": ("doc_id", "document_id", "docid", "_id", "uuid", "warc_record_id", "metadata.WARC-Record-ID"),
    "dump": ("snapshot_id", "crawl", "cc_dump"),
    "url": ("uri", "target_uri", "metadata.url", "metadata.WARC-Target-URI", "meta.url"),
    "date": ("timestamp", "date_download", "created", "crawl_date", "ts", "metadata.WARC-Date", "meta.timestamp"),
    "file_path": ("warc_filename", "cc_segment", "metadata.warc_filename"),
    "language": ("lang", "document_lang", "language_code", "metadata.language", "meta.language"),
    "language_score": ("lang_score", "language_probability", "metadata.language_score"),
    "token_count": ("n_tokens", "num_tokens", "metadata.token_count"),
}

RESTATED = b"datamask.from"  # a field's metadata: the type in the corpus, where a release has another kind of value
NULL = "__HIVE_DEFAULT_PARTITION__"
_WHOLE = re.compile(r"0|-?[1-9]\d{0,17}")


@dataclass(frozen=True)
class Column:
    """A column as it is read: its name and type here, and its place in the file."""

    name: str
    path: tuple[str, ...]  # one name, or the names down to a struct's field
    type: pa.DataType
    restated: bytes = b""  # its type in the file, where `type` is another kind of value

    @property
    def field(self) -> pa.Field:
        return pa.field(self.name, self.type, metadata={RESTATED: self.restated} if self.restated else None)


def recognise(schema: pa.Schema, mapping: Mapping[str, str], where: str, drop: Sequence[str]) -> list[Column]:
    """The columns of a file under our names: FineWeb's first, then the others in the file's order, all kept but `drop`.

    :param mapping: `corpus.columns`, our name → the file's; a name the file does not have is passed over, except text.
    :param where: the file, for messages.
    :raises InputError: no text column (lists the columns there are), or one that is not text; a name twice.
    """
    twice = [name for name, count in Counter(schema.names).items() if count > 1]
    if twice:
        raise InputError(
            f"{where}: {len(twice)} column name(s) stand more than once, {twice[0]!r} for one; rename them"
        )
    taken: dict[str, tuple[str, ...]] = {}
    for name in FINEWEB.names:
        wanted = [mapping[name]] if name in mapping else [name, *ALIASES[name]]
        for candidate in wanted:
            path = _locate(schema, candidate)
            if path is not None and (name in mapping or candidate == name or _fits(_type_at(schema, path), name)):
                taken[name] = path
                break
    if "text" not in taken:
        wanted_text = mapping.get("text")
        there = shown_names(spelled(schema)) or "none"
        if wanted_text:
            raise InputError(
                f"{where}: no column {wanted_text!r}, which corpus.columns names as the text"
                f"{nearest(wanted_text, spelled(schema))} (columns there are: {there})",
                path=where,
                setting="corpus.columns",
                valid=spelled(schema),
            )
        raise InputError(
            f"{where}: no text column; columns there are: {there}. "
            "Name the one that holds the text: --text-column NAME (--set corpus.columns.text=NAME)",
            path=where,
            valid=spelled(schema),
            next=["--text-column NAME", "--set corpus.columns.text=NAME"],
        )
    if not is_texty(_type_at(schema, taken["text"])):
        raise InputError(
            f"{where}: column {'.'.join(taken['text'])!r} has type {_type_at(schema, taken['text'])}, not text; "
            "name another: --text-column NAME (--set corpus.columns.text=NAME)",
            path=where,
            next=["--text-column NAME", "--set corpus.columns.text=NAME"],
        )
    for name, theirs in mapping.items():
        path = _locate(schema, theirs)
        if name not in FINEWEB.names and path is not None:
            taken[name] = path
    columns = [_column(name, path, _type_at(schema, path)) for name, path in taken.items()]
    used = {path[0] for path in taken.values() if len(path) == 1}
    names = {*taken, *ROW_COLUMNS}
    for field in schema:
        if field.name in used or field.name in drop:
            continue
        name = field.name or "unnamed"
        while name in names:
            name += "_original"
        names.add(name)
        columns.append(_column(name, (field.name,), field.type))
    return [column for column in columns if column.name == "text" or column.name not in drop]


def _column(name: str, path: tuple[str, ...], type_: pa.DataType) -> Column:
    target = FINEWEB.field(name).type if name in FINEWEB.names else released_type(type_)
    restated = is_restated(type_) or (name != "text" and target == pa.string() and _is_bytes(type_))
    return Column(name, path, target, str(type_).encode() if restated else b"")


def spelled(schema: pa.Schema) -> list[str]:
    """The names that a setting may give: columns, and of structs their fields too, as meta.url."""
    found = []
    for field in schema:
        found.append(field.name)
        if pa.types.is_struct(field.type):
            found += [f"{field.name}.{inner}" for inner in spelled(pa.schema(list(field.type)))]
    return found


def nearest_column(name: str, there: Sequence[str]) -> str:
    """The end of a message about an unknown column: what the corpus's own is called here, or the `nearest`."""
    ours = next((ours for ours, theirs in ALIASES.items() if name in theirs and ours in there), None)
    return f"; the corpus's {name} is read as {ours}" if ours else nearest(name, there)


def shown_names(names: Sequence[str]) -> str:
    """Columns' names in a message: each bounded, for what stands in a first line may be a whole document."""
    cut = [name if len(name) <= 60 else f"{name[:60]}…" for name in names[:40]]
    return ", ".join(printable(name) for name in cut) + (f" and {len(names) - 40} more" if len(names) > 40 else "")


def is_texty(type_: pa.DataType) -> bool:
    """True for every physical kind of string, for bytes (to be decoded), and for a column of nulls alone."""
    bare = released_type(type_)
    return pa.types.is_string(bare) or pa.types.is_null(bare) or pa.types.is_binary(bare)


def canonical(array: pa.Array, target: pa.DataType, exact: bool = False) -> pa.Array:
    """`array` as `target`, one of FINEWEB's types; a value that has no such form becomes null.

    Numbers from text, integers from floats; text from numbers, times, bytes (UTF-8, else U+FFFD; of a fixed size in
    hex) and, as JSON, from nested values.

    :param exact: bytes that are no text become hex, so that what differed still differs.
    """
    array = as_released(array)
    source = array.type
    if source == target:
        return array
    if pa.types.is_null(source):
        return pa.nulls(len(array), target)
    if target != pa.string():
        return _numbers(array, target)
    if pa.types.is_fixed_size_binary(source):
        return pa.array([v if v is None else v.hex() for v in array.to_pylist()], target)
    if pa.types.is_binary(source):
        return pa.array([v if v is None else _decoded(v, exact) for v in array.to_pylist()], target)
    return json_texts(array) if pa.types.is_nested(source) else array.cast(target)


def texts_of(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of any type as text, as `canonical` writes its values."""
    return pa.chunked_array([canonical(chunk, pa.string()) for chunk in column.chunks], pa.string())


def numbers(array: pa.Array) -> pa.Array:
    """A column of numbers, truth values or text that spells numbers as doubles; null where it is none of these."""
    return array.cast(pa.float64()) if pa.types.is_boolean(array.type) else canonical(array, pa.float64())


def numbers_of(rows: pa.Table, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Some of the columns as `numbers`, (rows,) float64 each, NaN for null."""
    return {name: numbers(rows[name].combine_chunks()).to_numpy(zero_copy_only=False) for name in names}


def is_number(type_: pa.DataType) -> bool:
    """Whether a column of this type may hold what `numbers` can read."""
    return is_numeric(type_) or pa.types.is_boolean(type_) or pa.types.is_string(type_)


def is_numeric(type_: pa.DataType) -> bool:
    return pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)


def _decoded(value: bytes, exact: bool) -> str:
    text = value.decode("utf-8", "replace")
    return value.hex() if exact and ("\ufffd" in text or not text.isprintable()) else text


def _numbers(array: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_string(array.type):
        number = pc.match_substring_regex(array, r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$")
        kept = pc.if_else(number, pc.utf8_trim_whitespace(array), pa.scalar(None, pa.string()))
        array = pc.replace_substring_regex(kept, r"^\+", "").cast(pa.float64())
    elif not is_numeric(array.type):
        return pa.nulls(len(array), target)
    if target == pa.float64():
        return array.cast(target, safe=False)
    if pa.types.is_integer(array.type) and not pa.types.is_uint64(array.type):
        return array.cast(target)
    floats = array.cast(pa.float64(), safe=False)
    sound = pc.and_(pc.is_finite(floats), pc.less(pc.abs(floats), 2.0**62))
    return pc.if_else(sound, floats, pa.scalar(None, pa.float64())).cast(target, safe=False)


def _is_bytes(type_: pa.DataType) -> bool:
    bare = released_type(type_)
    return pa.types.is_binary(bare) or pa.types.is_fixed_size_binary(bare)


def _fits(type_: pa.DataType, name: str) -> bool:
    """True when a column under a foreign name can be ours: a list called `tokens` is no token_count."""
    bare = released_type(type_)
    number = is_numeric(bare)
    if name == "text":
        return is_texty(bare) and not pa.types.is_null(bare)
    if FINEWEB.field(name).type != pa.string():
        return number
    others = {"id": number or _is_bytes(bare), "date": number or pa.types.is_temporal(bare)}
    return pa.types.is_string(bare) or others.get(name, False)


def _locate(schema: pa.Schema, name: str) -> tuple[str, ...] | None:
    if schema.get_field_index(name) >= 0:
        return (name,)
    for dot in (place for place, sign in enumerate(name) if sign == "."):  # names may have dots of their own
        index = schema.get_field_index(name[:dot])
        if index >= 0 and pa.types.is_struct(schema.field(index).type):
            inner = _locate(pa.schema(list(schema.field(index).type)), name[dot + 1 :])
            if inner is not None:
                return (name[:dot], *inner)
    return None


def _type_at(schema: pa.Schema, path: tuple[str, ...]) -> pa.DataType:
    type_ = schema.field(path[0]).type
    for name in path[1:]:
        type_ = type_.field(type_.get_field_index(name)).type
    return type_


def union_schema(schemas: Sequence[tuple[str, pa.Schema]]) -> pa.Schema:
    """One schema that holds every (name, schema): FineWeb's columns first, then the others as they appear.

    Integers and floats widen, structs gain fields, nulls and empty lists give way.

    :raises InputError: a column's types exclude each other; names the column, both types and where each is.
    """
    fields: dict[str, tuple[pa.Field, str]] = {}
    for where, schema in schemas:
        for field in schema:
            known, first = fields.get(field.name, (field, where))
            if known.type != field.type:
                try:
                    known = known.with_type(join_types(known.type, field.type))
                except pa.ArrowException as error:
                    raise InputError(
                        f"column {field.name!r} is {known.type} in {first} but {field.type} in {where}; a "
                        "release has one type for a column: make them agree, or leave the column out: "
                        f"--set corpus.drop=[{field.name}]"
                    ) from error
            if told := {restated for one in (known, field) if (restated := (one.metadata or {}).get(RESTATED))}:
                known = known.with_metadata({RESTATED: b" or ".join(sorted(told))})
            fields[field.name] = (known, first)
    first_names = [name for name in FINEWEB.names if name in fields]
    rest = [name for name in fields if name not in FINEWEB.names]
    return pa.schema([fields[name][0] for name in [*first_names, *rest]])


def complete(schema: pa.Schema) -> pa.Schema:
    """The schema of `union_schema` once every shard is in it: what has no value anywhere is text."""
    return pa.schema([field.with_type(filled(field.type)) for field in schema])


def mend_strings(array: pa.Array) -> tuple[pa.Array, np.ndarray | None]:
    """A string array whose every value is valid UTF-8, and which rows were not (None: all were).

    Parquet readers hand bytes through unchecked; what is invalid is replaced by U+FFFD.
    """
    try:
        array.validate(full=True)
        return array, None
    except pa.ArrowInvalid:
        pass
    values = array.cast(pa.binary()).to_pylist()
    bad = np.zeros(len(values), dtype=bool)
    mended = []
    for row, value in enumerate(values):
        try:
            mended.append(None if value is None else value.decode("utf-8"))
        except UnicodeDecodeError:
            bad[row] = True
            mended.append(value.decode("utf-8", "replace"))
    return pa.array(mended, pa.string()), bad


# ---------------------------------------------------------------- columns that folders name
# `dump=CC-MAIN-2024-10/language=en/` says dump and language of every row below. As pyarrow, DuckDB and Spark read them:
# %-escapes are decoded, __HIVE_DEFAULT_PARTITION__ is null, the folder's value holds where the file has the column too.
# A column is of integers where all its values are, without leading zeros.


def folder_values(path: str) -> dict[str, str | None]:
    """What the folders of a file's path say, outermost first; the text is never taken from there."""
    values: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        name, sign, value = folder.partition("=")
        if sign and name and value.strip("="):
            values[unquote(name)] = None if value == NULL else unquote(value)
    values.pop("text", None)
    return values


def typed_values(values: Sequence[Mapping[str, str | None]]) -> list[tuple[tuple[str, Value], ...]]:
    """The values of each file, as integers in columns that hold nothing else."""
    texts = {name for each in values for name, value in each.items() if value and not _WHOLE.fullmatch(value)}
    return [
        tuple((name, value if value is None or name in texts else int(value)) for name, value in each.items())
        for each in values
    ]


def with_fields(schema: pa.Schema, part: Part) -> pa.Schema:
    """A file's schema with the columns that its folders name."""
    own = dict(part.read_as.folders)
    if not own:
        return schema
    return pa.schema(
        [*(field for field in schema if field.name not in own), *((name, _type(value)) for name, value in own.items())],
        metadata=schema.metadata,
    )


def with_values(batch: pa.RecordBatch, part: Part) -> pa.RecordBatch:
    """A file's rows with the values that its folders give."""
    own = dict(part.read_as.folders)
    if not own:
        return batch
    arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
    arrays |= {name: pa.repeat(pa.scalar(value, _type(value)), batch.num_rows) for name, value in own.items()}
    return pa.RecordBatch.from_arrays([*arrays.values()], names=[*arrays])


def _type(value: Value) -> pa.DataType:
    return pa.null() if value is None else pa.int64() if isinstance(value, int) else pa.string()
