"""What was decided of connected documents, by a key of all that it depends on: a later run need not read them again.

A component, the documents that pairs connect, is decided on its own: by its texts, their quality and order, and what
its pairs share. Its key says these, the texts by their shards' content; what falls is told by the documents' places in
the component, so that it holds wherever they come to lie in the corpus.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from datamask import storage
from datamask.filter.resolve import FALL
from datamask.maps import partition_of, read_dealt, records_of

# one for each document that falls; `falls` −1: the component is known, one for each. Places are among its documents.
RECORD = np.dtype(
    [
        ("high", "<u8"),
        ("low", "<u8"),
        ("falls", "<i4"),
        ("stays", "<i4"),
        ("cluster", "<i4"),
        ("kind", "i1"),
        ("similarity", "<f4"),
    ]
)
PIECE = 1 << 16  # records that are looked at together: 2 MB


def keys_of(
    component: np.ndarray,
    documents: np.ndarray,
    about: Sequence[np.ndarray],
    fixed: int,
    pairs: np.ndarray,
    rules: Any,
) -> np.ndarray:
    """(C, 2) uint64, of each component.

    :param component: (D,) of the documents (D,), ascending. :param about: (D,) each, what else is said of these.
    :param fixed: so many documents, the first, stay whatever is found.
    :param pairs: (P,) one, other, own. :param rules: small, JSON.
    """
    place = places(component)
    facts = np.rec.fromarrays([*about, documents < fixed])
    sides = [np.searchsorted(documents, pairs[side]) for side in ("one", "other")]
    said = np.rec.fromarrays([place[sides[0]], place[sides[1]], pairs["own"]])
    count = int(component.max()) + 1 if len(component) else 0
    parts = [_by_component(*given, count) for given in ((facts, component), (said, component[sides[0]]))]
    begin = hashlib.blake2b(json.dumps(rules, sort_keys=True).encode(), digest_size=16)
    keys = np.empty((count, 2), np.uint64)
    for number in range(count):
        digest = begin.copy()
        for data, size, ends in parts:
            own_bytes = data[size * ends[number] : size * ends[number + 1]]
            digest.update(len(own_bytes).to_bytes(8, "little") + own_bytes)
        keys[number] = np.frombuffer(digest.digest(), np.uint64)
    return keys


def _by_component(rows: np.ndarray, component: np.ndarray, count: int) -> tuple[bytes, int, np.ndarray]:
    """The rows' bytes, component by component, in their order; bytes of a row; where each component begins."""
    order = np.argsort(component, kind="stable")
    ends = np.searchsorted(component[order], np.arange(count + 1))
    return rows[order].tobytes(), rows.dtype.itemsize, ends


def places(component: np.ndarray) -> np.ndarray:
    """(D,) the place of each document among those of its component."""
    order = np.argsort(component, kind="stable")
    first = np.searchsorted(component[order], component[order])
    found = np.empty(len(component), np.int64)
    found[order] = np.arange(len(component)) - first
    return found


# ---------------------------------------------------------------- kept


def save_decisions(url: str, pieces: int, records: Iterable[np.ndarray]) -> None:
    """Publishes the records (R,) of each piece (`partition_of` their `high`), for the next run's `find_decisions`."""
    with storage.publish(url, durable=False) as temporary, temporary.open("wb") as file:
        bounds = np.zeros(pieces + 1, np.int64)
        file.seek(8 * (pieces + 2))
        for number, found in enumerate(records):
            # components that are alike in every respect were decided twice, and equally
            once = np.unique(found)
            bounds[number + 1] = bounds[number] + len(once)
            file.write(once.view(np.uint8).data)
        file.seek(0)
        file.write(np.int64(pieces).tobytes() + bounds.tobytes())


def find_decisions(url: str | None, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(C,) bool, which of these components are known; and the RECORDs of those.

    :param url: of what an earlier run saved; None: there is none.
    """
    known, found = np.zeros(len(keys), bool), [np.zeros(0, RECORD)]
    if url is None or not len(keys):
        return known, found[0]
    with storage.open_input(url) as file:
        pieces = int(np.frombuffer(file.read(8), np.int64)[0])
    piece = partition_of(keys[:, 0], pieces)
    for number in np.unique(piece).tolist():
        records = read_dealt(url, RECORD, number, number + 1)[0]
        mine = np.flatnonzero(piece == number)
        asked, names = _numbered((keys[mine, 0], keys[mine, 1]), (records["high"], records["low"]))
        known[mine] = np.isin(asked, names)
        found.append(records[np.isin(names, asked)])
    return known, np.concatenate(found)


def _numbered(*keys: tuple[np.ndarray, np.ndarray]) -> list[np.ndarray]:
    """Numbers that are equal where keys (high, low) are."""
    every = np.concatenate([np.stack(pair, axis=1) for pair in keys])
    bytes_of = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(every), [None, pa.py_buffer(every)])
    number = bytes_of.dictionary_encode().indices.to_numpy()
    return np.split(number, np.cumsum([len(one) for one, _ in keys])[:-1])


# ---------------------------------------------------------------- records and documents


def records(
    found: np.ndarray, documents: np.ndarray, component: np.ndarray, keys: np.ndarray, known: np.ndarray
) -> np.ndarray:
    """(R,) RECORD of the components that were not known. found: FALL of their documents."""
    place, at = places(component), np.searchsorted(documents, found["document"])
    others = {name: place[np.searchsorted(documents, found[name])] for name in ("stays", "cluster")}
    others |= {name: found[name] for name in ("kind", "similarity")}
    high, low = keys[component[at]].T
    fallen = records_of(RECORD, high=high, low=low, falls=place[at], **others)
    high, low = keys[~known].T
    return np.concatenate([records_of(RECORD, high=high, low=low, falls=np.full(len(high), -1)), fallen])


def falls_of(every: np.ndarray, documents: np.ndarray, component: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """(F,) FALL by document, of all these components."""
    every = np.unique(every[every["falls"] >= 0])
    asked, names = _numbered((every["high"], every["low"]), (keys[:, 0], keys[:, 1]))
    order = np.argsort(names, kind="stable")
    low, high = (np.searchsorted(names[order], asked, side) for side in ("left", "right"))
    times = high - low  # components that are alike in every respect have one key
    row = np.repeat(np.arange(len(every)), times)
    own = order[np.repeat(low, times) + np.arange(len(row)) - np.repeat(np.cumsum(times) - times, times)]
    by_component = np.argsort(component, kind="stable")
    first = np.searchsorted(component[by_component], np.arange(len(keys)))
    found = {
        name: documents[by_component[first[own] + every[place][row]]]
        for name, place in (("document", "falls"), ("stays", "stays"), ("cluster", "cluster"))
    }
    fallen = records_of(FALL, **found, kind=every["kind"][row], similarity=every["similarity"][row])
    return fallen[np.argsort(fallen["document"])]
