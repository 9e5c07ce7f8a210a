"""Reads candidates' whole texts and decides pair by pair, then who stays.

The texts are fetched once, shard by shard, into scratch files of bounded size such that connected candidates lie in
the same file; each file is then decided on its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from datamask.config import Config
from datamask.corpus.read import read_batches
from datamask.filter.candidates import FEW, OWN, STRONG, Pairs
from datamask.filter.intact import Natural, Text, most, packaging, reworded, worse
from datamask.filter.postings import Documents
from datamask.filter.resolve import Edge, Fall, stars
from datamask.filter.shingles import WINDOW, Likeness, codes_of, likeness, once, windows
from datamask.filter.surface import Prose, Surface, prose, surface
from datamask.stages import Progress, ShardFiles
from datamask.storage import storage_errors

ROOM = 1 << 26  # letters of the texts decided at a time: 0.25 GB of shingles, and as much text
TEXT_BYTES = 1 << 23  # of texts shingled at a time
SHORT = 150  # shingles: two shorter texts that share a sentence are alike too soon, and must be alike at STRONG
# of the setting: with one word in ten replaced, 28 Chinese and Japanese copies have a Jaccard of .24 to .38 (others .42
# and more), because there a word is a letter or two and each breaks as many windows
UNSPACED = 0.65
LONGER = 1.15  # times as many shingles: a text that holds another and so much more is no noisy copy of it
NAVIGATION = 1.5  # times as many: what is more may be navigation alone
QUALITY_NOISE = 0.5  # standard deviations of quality_score that a change of layout may cost (issue of the score)
# Of 6,000 halves and three quarters 3 in 100 beat the whole by 0.2 and leave packaging; of 1,370 reviewed main texts
# 79 in 100 do against their page
CLEARER = 0.2  # standard deviations by which a text must beat what contains it, if all that adds is packaging
CLEAR = 1.4  # standard deviations, if what it adds is text like the rest
LITTLE = 0.4  # of the larger one's shingles: less is a quotation, by which the better of the two does not fall
ROUNDS = 3  # of comparing what stays of one group


@dataclass(frozen=True)
class Rules:
    """What makes two texts duplicates."""

    jaccard: float
    containment: float


def decide(
    pairs: Pairs,
    cosines: Mapping[tuple[int, int], float],
    documents: Documents,
    quality: np.ndarray,
    sources: Sequence[tuple[ShardFiles, Config]],
    rules: Rules,
    folder: str,
    progress: Progress,
    natural: Natural | None = None,
) -> dict[int, tuple[Fall, int]]:
    """Each document that falls, what it falls to, and its cluster: the lowest number of the documents it is tied to.

    :param cosines: pairs that are duplicates by their embeddings alone.
    :param quality: (N,) quality_score, or NaN.
    :param sources: the shards, by their number, with the settings they are read by.
    :param natural: see `worse`.
    """
    ties = np.array(list(cosines), dtype=np.int64).reshape(-1, 2)
    one, other = np.concatenate([pairs.one, ties[:, 0]]), np.concatenate([pairs.other, ties[:, 1]])
    if not len(one):
        return {}
    count = len(documents)
    edges = coo_array((np.ones(len(one), bool), (one, other)), shape=(count, count))
    group = connected_components(edges, directed=False)[1]
    needed = np.zeros(count, bool)
    needed[one] = needed[other] = True
    part = _parts(documents.windows, needed, group)
    parts = int(part.max()) + 1
    _fetch(documents, part, parts, sources, folder, progress)
    spread = float(np.nanstd(quality)) if np.isfinite(quality).any() else 0.0
    found: dict[int, tuple[Fall, int]] = {}
    for number in range(parts):
        judge = _Judge(_read(folder, number), documents, quality, spread, rules, natural)
        mine = part[pairs.one] == number
        for a, b, own in zip(pairs.one[mine], pairs.other[mine], pairs.own[mine], strict=True):
            judge.compare(int(a), int(b), float(own))
        for (a, b), cosine in cosines.items():
            if part[a] == number:
                judge.by_cosine(a, b, cosine)
        found |= judge.falls()
    return found


def _parts(lengths: np.ndarray, needed: np.ndarray, group: np.ndarray) -> np.ndarray:
    """(N,) int32: the scratch file of each needed document, −1 for the others; a group is in one file."""
    size = np.bincount(group[needed], lengths[needed], group.max() + 1)
    filled = np.cumsum(size)
    file = (np.maximum(filled - 1, 0) // ROOM).astype(np.int64)
    file = np.unique(file[group[needed]], return_inverse=True)[1]
    part = np.full(len(group), -1, np.int32)
    part[needed] = file
    return part


# ---------------------------------------------------------------- texts


def _fetch(
    documents: Documents,
    part: np.ndarray,
    parts: int,
    sources: Sequence[tuple[ShardFiles, Config]],
    folder: str,
    progress: Progress,
) -> None:
    """Writes the texts of the documents of each part into its file."""
    schema = pa.schema([("document", pa.int64()), ("text", pa.large_string())])
    bounds = np.searchsorted(documents.shard, np.arange(len(sources) + 1))
    with storage_errors(folder, "write"):
        files = [pa.OSFile(str(Path(folder) / f"texts-{n}"), "wb") for n in range(parts)]
        writers = [pa.ipc.new_stream(file, schema) for file in files]
        for number, (files_of, config) in enumerate(sources):
            mine = np.arange(bounds[number], bounds[number + 1])
            mine = mine[part[mine] >= 0]
            if len(mine):
                rows = documents.chunk_id[mine]
                only = np.zeros(max(files_of.shard.rows or 0, int(rows.max()) + 1), bool)
                only[rows] = True
                for batch in read_batches(files_of.shard, config, ["text"], only=only):
                    chunk = batch["chunk_id"].to_numpy()
                    kept = only[chunk]
                    if kept.any():
                        which = mine[np.searchsorted(rows, chunk[kept])]
                        texts = batch["text"].filter(pa.array(kept)).cast(pa.large_string())
                        for target in np.unique(part[which]):
                            here = part[which] == target
                            table = pa.record_batch(
                                [pa.array(which[here]), texts.filter(pa.array(here))], schema=schema
                            )
                            writers[target].write_batch(table)
            progress(files_of.shard.rows or 0)
        for writer, file in zip(writers, files, strict=True):
            writer.close()
            file.close()


def _blocks(folder: str, number: int) -> Iterator[tuple[np.ndarray, pa.Array]]:
    with pa.OSFile(str(Path(folder) / f"texts-{number}")) as file:
        for batch in pa.ipc.open_stream(file):
            sizes = np.cumsum(pa.compute.binary_length(batch["text"]).to_numpy()) // TEXT_BYTES
            cuts = [0, *(np.flatnonzero(np.diff(sizes)) + 1), len(sizes)]
            for start, stop in pairwise(cuts):
                yield batch["document"].to_numpy()[start:stop], batch["text"].slice(start, stop - start)


def _read(folder: str, number: int) -> dict[int, Text]:
    found = {}
    for documents, texts in _blocks(folder, number):
        codes, ends = codes_of(texts)
        made, seen, lines = windows(codes, ends), surface(codes, ends), prose(codes, ends)
        for place, document in enumerate(documents.tolist()):
            first, count = int(made.first[place]), int(made.count[place])
            hashes = made.hashes[first : first + count].copy()
            units = made.units[first : first + count + WINDOW - 1].copy()
            parts = Surface(*(int(values[place]) for values in seen))
            said = Prose(*(int(values[place]) for values in lines))
            found[document] = Text(hashes, once(hashes), units, parts, said, texts[place].as_py())
    return found


# ---------------------------------------------------------------- pairs


class _Judge:
    """Decides the pairs of one part."""

    def __init__(
        self,
        texts: dict[int, Text],
        documents: Documents,
        quality: np.ndarray,
        spread: float,
        rules: Rules,
        natural: Natural | None,
    ) -> None:
        self._natural = natural
        self._texts = texts
        self._documents = documents
        self._quality = quality
        self._spread = spread
        self._rules = rules
        self._edges: dict[tuple[int, int], Edge] = {}
        self._seen: set[tuple[int, int]] = set()

    def compare(self, one: int, other: int, own: float) -> None:
        """Adds the pair if it is verified. own: the share of what they have in common that no template explains."""
        self._seen.add((one, other))
        a, b = self._texts[one], self._texts[other]
        like = likeness(a.shingles, b.shingles)
        theirs = own >= OWN
        fewer = min(len(a.shingles), len(b.shingles))
        contained = like.containment >= self._rules.containment
        near = like.jaccard >= STRONG
        least = self._rules.jaccard * (UNSPACED if a.unspaced and b.unspaced else 1)
        if not near and like.jaccard >= least and theirs and fewer >= SHORT:
            near = contained or reworded(a, b)
        if near:
            larger = max(len(a.shingles), len(b.shingles))
            if contained and larger > LONGER * fewer:
                self._contained(one, other, like)
            else:
                kind = "exact" if like.jaccard == 1 else "near"
                self._edges[one, other] = Edge(one, other, kind, like.jaccard, self._worse(one, other, like))
        elif contained and theirs:
            self._contained(one, other, like)

    def by_cosine(self, one: int, other: int, cosine: float) -> None:
        """Adds a pair that the settings let fall unread."""
        if (one, other) not in self._edges:
            qualities = self._quality[[one, other]]
            falls = one if qualities[0] < qualities[1] else other
            self._edges[one, other] = Edge(one, other, "semantic", cosine, falls)

    def _contained(self, one: int, other: int, like: Likeness) -> None:
        """The shorter one falls, unless the longer one is the same in packaging, or all it adds is without a sentence.

        Of a worse text that holds mostly something else neither is a copy: neither falls.
        """
        small, large = self._by_length(one, other)
        a, b = self._texts[small], self._texts[large]
        if self._packed(small, large):
            if most(a, b):
                self._edges[one, other] = Edge(one, other, "contained", like.containment, large)
        elif len(a.shingles) < LITTLE * len(b.shingles) and self._better(small, large, QUALITY_NOISE):
            return
        elif len(b.shingles) <= NAVIGATION * len(a.shingles) and (falls := worse(a, b, like, self._natural)) > 0:
            self._edges[one, other] = Edge(one, other, "contained", like.containment, large if falls > 0 else small)
        else:
            self._edges[one, other] = Edge(one, other, "contained", like.containment, small, only=True)

    def _worse(self, one: int, other: int, like: Likeness) -> int:
        """The copy that should fall, −1 if none is worse by more than noise."""
        found = worse(self._texts[one], self._texts[other], like, self._natural)
        small, large = self._by_length(one, other)
        if self._packed(small, large):
            return large
        if found:
            return one if found < 0 else other
        margin = self._quality[one] - self._quality[other]
        if abs(margin) > QUALITY_NOISE * self._spread > 0:
            return one if margin < 0 else other
        return -1

    def _by_length(self, one: int, other: int) -> tuple[int, int]:
        small, large = sorted((one, other), key=lambda d: (len(self._texts[d].shingles), d))
        return small, large

    def _packed(self, small: int, large: int) -> bool:
        """Whether the larger one is the smaller one in packaging, and the worse for it."""
        if self._better(small, large, CLEAR):
            return True
        return self._better(small, large, CLEARER) and packaging(self._texts[small], self._texts[large])

    def _better(self, one: int, other: int, deviations: float) -> bool:
        return bool(self._quality[one] - self._quality[other] > deviations * self._spread > 0)

    def falls(self) -> dict[int, tuple[Fall, int]]:
        """Who falls, after what stays of a group has been compared with its first ones."""
        length = {document: len(text.shingles) for document, text in self._texts.items()}
        fixed = range(self._documents.fixed)
        for _ in range(ROUNDS):
            fallen = stars(list(self._edges.values()), length, fixed)
            clusters = _clusters(self._edges)
            staying: dict[int, list[int]] = {}
            for document, cluster in clusters.items():
                if document not in fallen:
                    staying.setdefault(cluster, []).append(document)
            new = {
                (min(first, document), max(first, document))
                for members in staying.values()
                for first in sorted(members, key=lambda d: (-length[d], d))[:FEW]
                for document in members
                if document != first and max(first, document) >= self._documents.fixed
            } - self._seen
            if not new:
                break
            for one, other in sorted(new):
                self.compare(one, other, 0.0)
        return {document: (fall, clusters[document]) for document, fall in fallen.items()}


def _clusters(edges: Mapping[tuple[int, int], Edge]) -> dict[int, int]:
    """The lowest number of the documents each is tied to."""
    parent: dict[int, int] = {}

    def root(document: int) -> int:
        while parent.setdefault(document, document) != document:
            parent[document] = parent[parent[document]]
            document = parent[document]
        return document

    for one, other in edges:
        low, high = sorted((root(one), root(other)))
        parent[high] = low
    return {document: root(document) for document in sorted(parent)}
