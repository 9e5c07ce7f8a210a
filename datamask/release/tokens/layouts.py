"""How token files lie on a disk: Megatron-LM's, nanotron's and datatrove's, and numpy's.

In each, a file of tokens holds documents one after the other, and an index beside it says where they end. All numbers
are little-endian. What an index holds follows from the documents' lengths alone, so a reader makes it again from the
lengths that it states, and compares.
"""

from __future__ import annotations

import contextlib
import io
import struct
from collections.abc import Mapping

import numpy as np

from datamask.errors import DamagedFileError

MEGATRON_MAGIC = b"MMIDIDX\x00\x00"
MEGATRON_CODES = {"int32": 4, "uint16": 8}  # `DType` of megatron/core/datasets/indexed_dataset.py
MEGATRON_SMALL = 65_500  # vocabularies below it are uint16 there (its DType.optimal_dtype)
SMALL = 1 << 16  # vocabularies up to it are uint16 elsewhere (datatrove's `token_size`)


class Layout:
    """A format of token files. What it does not override is as datatrove's `DocumentTokenizer` has it."""

    tokens: str  # ending of the file of tokens
    index: str  # ending of its index

    def width(self, vocabulary: int) -> str:
        """The numpy type of a token, for token ids below `vocabulary`."""
        return "uint16" if vocabulary <= SMALL else "uint32"

    def header(self, tokens: int, width: str) -> bytes:
        return b""

    def render_index(self, lengths: np.ndarray, width: str) -> bytes:
        """The index of documents of these lengths, int64 [documents], in tokens."""
        return np.cumsum(lengths, dtype="<u8").tobytes()

    def read_lengths(self, index: bytes) -> np.ndarray:
        """The lengths that an index states, int64 [documents]; any, or an error, where it is damaged."""
        return np.diff(np.frombuffer(index, "<u8").astype(np.int64), prepend=0)

    def beside(self, tokens: int, width: str, tokenizer: str) -> Mapping[str, bytes]:
        """Other files by their ending."""
        return {}


class Nanoset(Layout):
    """`.ds` and `.ds.index`: the documents' ends as uint64, as datatrove's `DocumentTokenizer` writes them."""

    tokens, index = ".ds", ".ds.index"

    def beside(self, tokens: int, width: str, tokenizer: str) -> Mapping[str, bytes]:
        said, exponent = f"{tokens:.2e}".split("e")
        power, place = divmod(int(exponent), 3)
        short = f"{float(said) * 10**place:.{2 - place}f} {' kMGTP'[power].strip()}T"
        said = f"{tokenizer}|{np.dtype(width).itemsize}\n{tokens}\n{short}"
        return {".ds.metadata": said.encode()}


class Megatron(Layout):
    """`.bin` and `.idx`: Megatron-LM's IndexedDataset, a sequence for each document."""

    tokens, index = ".bin", ".idx"

    def width(self, vocabulary: int) -> str:
        return "uint16" if vocabulary < MEGATRON_SMALL else "int32"

    def render_index(self, lengths: np.ndarray, width: str) -> bytes:
        starts = (np.cumsum(lengths) - lengths) * np.dtype(width).itemsize
        head = MEGATRON_MAGIC + struct.pack("<QBQQ", 1, MEGATRON_CODES[width], len(lengths), len(lengths) + 1)
        ends = np.arange(len(lengths) + 1, dtype="<i8")  # in sequences
        return head + lengths.astype("<i4").tobytes() + starts.astype("<i8").tobytes() + ends.tobytes()

    def read_lengths(self, index: bytes) -> np.ndarray:
        count = struct.unpack_from("<Q", index, 18)[0]
        return np.frombuffer(index, "<i4", count, 34).astype(np.int64)


class Npy(Layout):
    """`.npy`, and `.offsets.npy`: where documents begin and the last ends, int64 [documents + 1]."""

    tokens, index = ".npy", ".offsets.npy"

    def header(self, tokens: int, width: str) -> bytes:
        head = io.BytesIO()
        described = {"descr": np.dtype(width).newbyteorder("<").str, "fortran_order": False, "shape": (tokens,)}
        np.lib.format.write_array_header_1_0(head, described)
        return head.getvalue()

    def render_index(self, lengths: np.ndarray, width: str) -> bytes:
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype("<i8")
        return self.header(len(offsets), "int64") + offsets.tobytes()

    def read_lengths(self, index: bytes) -> np.ndarray:
        return np.diff(np.frombuffer(index, "<i8", offset=len(self.header(0, "int64"))))


LAYOUTS: dict[str, Layout] = {"megatron": Megatron(), "nanoset": Nanoset(), "npy": Npy()}


def read_documents(layout: Layout, data: bytes, index: bytes, width: str) -> tuple[np.ndarray, np.ndarray]:
    """(tokens, lengths of the documents int64) of a file and its index.

    :raises DamagedFileError: one of them is not what the format has, or they do not fit together.
    """
    lengths = np.zeros(0, np.int64)
    with contextlib.suppress(ValueError, struct.error, OverflowError):
        lengths = layout.read_lengths(index)
    if lengths.ndim != 1 or (lengths <= 0).any() or layout.render_index(lengths, width) != index:
        raise DamagedFileError("its index is damaged")
    count, kind = int(lengths.sum()), np.dtype(width).newbyteorder("<")
    head = layout.header(count, width)
    if len(data) != len(head) + count * kind.itemsize or not data.startswith(head):
        raise DamagedFileError(f"it holds {(len(data) - len(head)) / kind.itemsize:g} tokens, its index {count}")
    return np.frombuffer(data, kind, offset=len(head)), lengths
