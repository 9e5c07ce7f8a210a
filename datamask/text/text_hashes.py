"""The hash that finds a text's copies: equal for texts that differ in case, white space and Unicode's spelling alone.

    text_hashes(pa.array(["One  text.", "one text. "]))      # twice the same 16 bytes

Most texts are normalised by a compiled loop over their bytes; Unicode's quick check (UAX 15, section 9) tells them from
those that need the library.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from hashlib import blake2b

import numpy as np
import pyarrow as pa

from datamask.text.code_points import tables
from datamask.text.utf8 import utf8

BLOCK_BYTES = 1 << 22  # of text, normalised at a time


def normalise(text: str) -> str:
    """What two copies of a text have in common: NFC, case-folded, runs of white space one space, none at the ends."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    else:
        text = text.lower()
    return " ".join(text.split())


def text_hash(text: str) -> bytes:
    """16 bytes, blake2b of the normalised text in UTF-8."""
    return blake2b(normalise(text).encode(), digest_size=16).digest()


def text_hashes(texts: pa.Array) -> list[bytes]:
    """The `text_hash` of each text; of a null that of an empty text.

    :param texts: of type string
    """
    return [blake2b(text, digest_size=16).digest() for text in _normalised(texts)]


def _normalised(texts: pa.Array) -> Iterator[bytes | memoryview]:
    """What is hashed of each text."""
    from datamask.text.utf8_loops import normalise_texts  # Numba

    raw, bounds = utf8(texts)
    first = 0
    while first < len(texts):
        last = max(first + 1, int(np.searchsorted(bounds, bounds[first] + BLOCK_BYTES, side="right")) - 1)
        made = np.empty(2 * int(bounds[last] - bounds[first]), np.uint8)
        ends = np.empty(last - first, np.int64)
        normalise_texts(raw, bounds[first : last + 1], *tables("NFC"), made, ends)
        begins = 0
        for row, end in zip(range(first, last), ends.tolist(), strict=True):
            if end < 0:
                yield normalise(texts[row].as_py()).encode()
            else:
                yield made[begins:end].data
                begins = end
        first = last
