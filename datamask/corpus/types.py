"""Column types as a release stores them: what parquet gives back unchanged and `datasets` can load.

as_released(array)        # an array of any type -> the same values, of released_type(array.type)

Views, large strings and lists, dictionaries and runs become the plain type; a uuid its text, a map a list of keys and
values, an extension type its storage. Parquet has no struct without fields: it gets a field EMPTY of nulls until the
types of all shards are joined (`join_types`), where `filled` takes it out again or makes the struct JSON text.
"""

from __future__ import annotations

import functools
import json
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

EMPTY = "_no_fields"  # the field of a struct that has none
MAP_FIELDS = ("key", "value")
MOST_DIGITS = 38  # of decimal128


@functools.cache
def released_type(type_: pa.DataType) -> pa.DataType:
    """The type that values of `type_` have in a release; null stays null, for another shard may have values."""
    kinds = pa.types
    if kinds.is_dictionary(type_) or kinds.is_run_end_encoded(type_):
        return released_type(type_.value_type)
    if isinstance(type_, pa.BaseExtensionType):
        if isinstance(type_, pa.UuidType):
            return pa.string()
        return pa.bool_() if isinstance(type_, pa.Bool8Type) else released_type(type_.storage_type)
    if kinds.is_large_string(type_) or kinds.is_string_view(type_) or kinds.is_interval(type_) or kinds.is_union(type_):
        return pa.string()
    if kinds.is_large_binary(type_) or kinds.is_binary_view(type_):
        return pa.binary()
    if kinds.is_decimal(type_):
        digits, scale = type_.precision - min(type_.scale, 0), max(type_.scale, 0)
        return (pa.decimal128 if digits <= MOST_DIGITS else pa.decimal256)(digits, scale)
    if kinds.is_map(type_):
        values = (type_.key_type, type_.item_type)
        pairs = [(name, released_type(value)) for name, value in zip(MAP_FIELDS, values, strict=True)]
        return _list_of(pa.struct(pairs))
    if kinds.is_fixed_size_list(type_) and type_.list_size:
        return pa.list_(_element(released_type(type_.value_type)), type_.list_size)
    if _is_list(type_):
        return _list_of(released_type(type_.value_type))
    if kinds.is_struct(type_):
        return pa.struct([(field.name, released_type(field.type)) for field in type_] or [(EMPTY, pa.null())])
    coarse = {pa.timestamp("s").id: pa.timestamp("ms", getattr(type_, "tz", None)), pa.time32("s").id: pa.time32("ms")}
    if getattr(type_, "unit", None) == "s" and type_.id in coarse:
        return coarse[type_.id]
    return pa.date32() if kinds.is_date64(type_) else type_


def is_restated(type_: pa.DataType) -> bool:
    """Whether the release's type is another kind of value, not another layout of the same: what a user is told."""
    kinds = pa.types
    if kinds.is_dictionary(type_) or kinds.is_run_end_encoded(type_):
        return is_restated(type_.value_type)
    if isinstance(type_, pa.BaseExtensionType):
        return not isinstance(type_, pa.JsonType)
    if kinds.is_decimal(type_):
        return released_type(type_) != type_
    if kinds.is_map(type_) or kinds.is_interval(type_) or kinds.is_list_view(type_) or kinds.is_large_list_view(type_):
        return True
    if kinds.is_union(type_):
        return True
    if _is_list(type_):
        return is_restated(type_.value_type)
    return kinds.is_struct(type_) and any(is_restated(field.type) for field in type_)


def as_released(array: pa.Array) -> pa.Array:
    source, kinds = array.type, pa.types
    target = released_type(source)
    if source == target:
        return array
    if kinds.is_dictionary(source):
        return as_released(array.dictionary).take(array.indices)
    if kinds.is_run_end_encoded(source):
        places = np.arange(array.offset, array.offset + len(array))
        runs = np.searchsorted(array.run_ends.to_numpy(), places, side="right")
        return as_released(array.values).take(pa.array(runs))
    if isinstance(source, pa.BaseExtensionType):
        if isinstance(source, pa.UuidType):
            return pa.array([v and str(uuid.UUID(bytes=v)) for v in array.storage.to_pylist()], pa.string())
        return array.cast(target) if target == pa.bool_() else as_released(array.storage)
    if kinds.is_interval(source):
        return pa.array([v and _iso_8601(v) for v in array.to_pylist()], pa.string())
    if kinds.is_union(source):
        texts = (v if v is None or isinstance(v, str) else json_text(v) for v in array.to_pylist())
        return pa.array(texts, pa.string())
    if kinds.is_map(source):
        array = array.cast(pa.list_(pa.struct([*zip(MAP_FIELDS, (source.key_type, source.item_type), strict=True)])))
    if not kinds.is_nested(target):
        return array.cast(target)
    if kinds.is_struct(source) and not source.num_fields:
        array = pa.StructArray.from_arrays([pa.nulls(len(array))], names=[EMPTY], mask=array.is_null())
    return _rebuilt(array, target, lambda inner, _: as_released(inner))


def widened(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Released values as the type that theirs was joined to (`join_types`). (Arrow's own cast of a list of nulls to a
    list of nulls loses some.)

    :raises pyarrow.ArrowInvalid: a value does not fit.
    """
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    if pa.types.is_nested(array.type) and pa.types.is_string(target):
        return json_texts(array)
    if pa.types.is_decimal(array.type) and pa.types.is_floating(target):
        return _as_floats(array, target)
    return _rebuilt(array, target, widened) if pa.types.is_nested(target) else array.cast(target)


def _as_floats(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Decimals as the nearest floats that tell every digit of theirs. (Arrow's own cast rounds, and has no halves.)"""
    floats = array.cast(pa.float64()).cast(target)
    if not floats.cast(pa.float64()).cast(array.type).equals(array):
        raise pa.ArrowInvalid(f"a value of {array.type} has more digits than {target}")
    return floats


def _rebuilt(array: pa.Array, target: pa.DataType, change: Callable[[pa.Array, pa.DataType], pa.Array]) -> pa.Array:
    """A struct or list anew, its fields or elements changed to those of `target`, by name; null where it has none."""
    source, kinds = array.type, pa.types
    mask = array.is_null() if array.null_count else None
    if kinds.is_struct(target):
        places = [source.get_field_index(field.name) for field in target]
        fields = [
            pa.nulls(len(array), field.type) if place < 0 else change(array.field(place), field.type)
            for place, field in zip(places, target, strict=True)
        ]
        return pa.StructArray.from_arrays(fields, fields=[*target], mask=mask)
    if kinds.is_fixed_size_list(target):
        inner = array.values.slice(array.offset * source.list_size, len(array) * source.list_size)
        return pa.FixedSizeListArray.from_arrays(change(inner, target.value_type), type=target, mask=mask)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, change(array.flatten(), target.value_type), type=target, mask=mask)


def join_types(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    """The type that holds the values of both: numbers widen, structs gain fields, nulls and empty lists give way.

    :raises pyarrow.ArrowException: there is none.
    """
    pair = [pa.schema([("x", type_)]) for type_ in (first, second)]
    return pa.unify_schemas(pair, promote_options="permissive").field(0).type


def filled(type_: pa.DataType) -> pa.DataType:
    """The type of a column of a release: text where every value of the corpus is null, or a struct has no field in any
    shard; readers of a release know neither."""
    if pa.types.is_null(type_):
        return pa.string()
    if pa.types.is_struct(type_):
        fields = [field.with_type(filled(field.type)) for field in type_ if field.name != EMPTY]
        return pa.struct(fields) if fields else pa.string()
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(_element(filled(type_.value_type)), type_.list_size)
    return _list_of(filled(type_.value_type)) if _is_list(type_) else type_


def json_texts(array: pa.Array) -> pa.Array:
    """Nested values as JSON text, for a column that has become text."""
    return pa.array([v if v is None else json_text(v) for v in array.to_pylist()], pa.string())


def json_text(value: Any) -> str:
    return json.dumps(_bare(value), ensure_ascii=False, default=str)


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _bare(inner) for name, inner in value.items() if name != EMPTY}
    return [_bare(inner) for inner in value] if isinstance(value, list) else value


def _is_list(type_: pa.DataType) -> bool:
    kinds = pa.types
    views = kinds.is_list_view(type_) or kinds.is_large_list_view(type_)
    return views or kinds.is_list(type_) or kinds.is_large_list(type_) or kinds.is_fixed_size_list(type_)


def _element(type_: pa.DataType) -> pa.Field:
    return pa.field("element", type_)  # parquet's own name for it


def _list_of(type_: pa.DataType) -> pa.DataType:
    return pa.list_(_element(type_))


def _iso_8601(value: pa.MonthDayNano) -> str:
    """A calendar interval as ISO 8601 writes it: P1M2DT0.000000003S."""
    seconds, rest = divmod(abs(value.nanoseconds), 10**9)
    return f"P{value.months}M{value.days}DT{'-' * (value.nanoseconds < 0)}{seconds}.{rest:09}S"
