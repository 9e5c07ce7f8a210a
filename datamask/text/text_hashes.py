"""The hash that finds a text's copies: equal for texts that differ in case, white space and Unicode's spelling alone.

text_hashes(pa.array(["One  text.", "one text. "]))      # twice the same 16 bytes
"""

from __future__ import annotations

import unicodedata
from hashlib import blake2b

import pyarrow as pa


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
    return [text_hash(text or "") for text in texts.to_pylist()]
