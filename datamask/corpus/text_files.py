"""Files of texts that are named beside the corpus: targets, test items, what must be forgotten."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from datamask import storage
from datamask.errors import InputError


def read_text_file(path: str, what: str) -> str:
    """The text of a file, unpacked as its name says.

    :param what: the file is, for the message: "target", or the setting that names it.
    :raises InputError: it is not there, cannot be unpacked, or is not UTF-8.
    """
    try:
        packed = storage.read_content(path)
    except FileNotFoundError as error:
        raise InputError(f"{what}: no such file: {path}", path=path) from error
    try:
        return storage.unpacked(packed, path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{what} {path} is not UTF-8 text (byte {error.start}); convert or drop it") from error
    except Exception as error:  # each codec has errors of its own
        raise InputError(f"{what} {path} cannot be unpacked ({error}); copy it again") from error


def holds_json_lines(path: str) -> bool:
    """Whether a file's name says that it holds JSON lines: .jsonl, .json or .ndjson, packed or followed by more."""
    return any(f".{kind}" in path.rsplit("/", 1)[-1].lower() for kind in ("json", "ndjson"))


def json_objects(text: str, where: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number of the line, object) of each line, or of each item of an array in a line; {} for another value. Empty
    lines are left out.

    :param where: the lines are from, for the message.
    :raises InputError: a line is not JSON.
    """
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                found = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InputError(
                    f"{where}, line {number} is not JSON ({error}); each line must be an object"
                ) from error
            for each in found if isinstance(found, list) and found else [found]:
                yield number, each if isinstance(each, dict) else {}
