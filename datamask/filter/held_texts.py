"""The texts of the pairs that are compared: few are held at a time, however many documents hang together.

    texts = HeldTexts(read, documents, letters)
    for places in windows_of_pairs(one, other, texts.letters_of, HELD):     # pairs that lie near one another
        texts.hold(np.concatenate([one[places], other[places]]))
        ...                                                                 # texts[document], of these alone

Pairs are taken in Cuthill and McKee's order of their graph (1969, "Reducing the bandwidth of sparse symmetric
matrices"), in which a document's neighbours come soon after it: small groups are read once, and of a large one a text
is read again only where the graph leads back to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
from scipy.sparse import coo_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from datamask.filter.intact import Text
from datamask.text.laid_texts import LaidTexts
from datamask.text.utf8 import runs_of

HELD = 1 << 24  # letters of the texts held at a time: 0.25 GB, as a letter is held as 12 bytes and the text beside them
TEXT_BYTES = 1 << 21  # bytes of texts shingled at a time
ReadTexts = Callable[[np.ndarray], Iterable[tuple[np.ndarray, pa.Array]]]  # documents asked for: documents, their texts


class HeldTexts:
    """Texts by document, of those last asked for."""

    def __init__(self, read: ReadTexts, documents: np.ndarray, letters: np.ndarray) -> None:
        """:param documents: (D,) ascending, all that may be asked for. :param letters: (D,) of each."""
        self._read, self._documents, self._letters = read, documents, letters
        self._held: dict[int, Text] = {}
        self.shingles: dict[int, int] = {}  # how many each document read so far has

    def __getitem__(self, document: int) -> Text:
        return self._held[document]

    def letters_of(self, documents: np.ndarray) -> np.ndarray:
        """The letters, int64, of these documents, an array of any shape."""
        return self._letters[np.searchsorted(self._documents, documents)]

    def hold(self, documents: np.ndarray) -> None:
        """Holds these documents (n,), which may name one twice, and no others; what is held already is not read."""
        wanted = np.unique(documents).tolist()
        self._held = {document: self._held[document] for document in wanted if document in self._held}
        missing = np.array([document for document in wanted if document not in self._held], np.int64)
        for document, text in _made(self._read(missing)):
            self._held[document] = text
            self.shingles[document] = len(text.shingles)


def numbered(hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(shingles, numbers) of a text's windows, (W,) uint32 in their order: the hashes ascending, each once, and which
    of these each window is, both uint32."""
    shingles, numbers = np.unique(hashes, return_inverse=True)
    return shingles, numbers.astype(np.uint32)


def windows_of_pairs(
    one: np.ndarray, other: np.ndarray, letters_of: Callable[[np.ndarray], np.ndarray], room: int
) -> Iterator[np.ndarray]:
    """Places of pairs (P,), each once, a window after another: its documents have at most so many letters.

    A pair that has more is a window of its own.
    """
    if not len(one):
        return
    documents, place = np.unique(np.concatenate([one, other]), return_inverse=True)
    ends = place[: len(one)], place[len(one) :]
    rank = _ranks(*ends, len(documents))
    letters = letters_of(documents).tolist()
    order = np.lexsort([find(rank[ends[0]], rank[ends[1]]) for find in (np.minimum, np.maximum)])
    held: set[int] = set()
    filled = begin = 0
    for at, (a, b) in enumerate(zip(ends[0][order].tolist(), ends[1][order].tolist(), strict=True)):
        new = {a, b} - held
        more = sum(letters[document] for document in new)
        if held and filled + more > room:
            yield order[begin:at]
            held, begin, new = set(), at, {a, b}
            filled, more = 0, sum(letters[document] for document in new)
        held |= new
        filled += more
    yield order[begin:]


def _ranks(one: np.ndarray, other: np.ndarray, count: int) -> np.ndarray:
    """(count,) int32: each document's place in Cuthill and McKee's order."""
    graph = coo_array((np.ones(len(one), np.int8), (one, other)), shape=(count, count)).tocsr()
    rank = np.empty(count, np.int32)
    rank[reverse_cuthill_mckee((graph + graph.T).tocsr(), symmetric_mode=True)[::-1]] = np.arange(count, dtype=np.int32)
    return rank


def _made(texts: Iterable[tuple[np.ndarray, pa.Array]]) -> Iterator[tuple[int, Text]]:
    for documents, every in texts:
        for run in runs_of(pa.compute.binary_length(every).to_numpy(), TEXT_BYTES):
            part = every[run]
            made = LaidTexts.of(part)
            for place, (document, text) in enumerate(zip(documents[run].tolist(), part.to_pylist(), strict=True)):
                shingles, numbers = numbered(made.shingles_of(place))
                yield document, Text(numbers, shingles, made.letters_of(place), made.surface_of(place), text)
