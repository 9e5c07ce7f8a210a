"""Pairs of documents that may be duplicates: those whose samples share enough, found without comparing all pairs.

Every document is looked up by its eight smallest sampled shingles in all samples, as MinHash does with bands (Broder
1997); the similarity of pairs that meet is estimated on their whole samples. Shingles that many documents share belong
to a template (a licence's text, a notice, a site's navigation) and are weak evidence, so shingles that only few groups
of copies share are counted separately.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from datamask.filter.pair_loops import WIDTH, codes_of_meetings, shared_by_pairs
from datamask.filter.postings import KEYS, WIDE, SeenDocuments, Shared, different, run_starts
from datamask.maps import places_of, records_of

NEIGHBOURS = 16  # each of a shingle's documents is paired with the 16 longest, and with the 16 next longer than itself
FEW = 6  # a shingle in more groups of copies belongs to a template, if these are alike (`outside_templates`)
CORPUS = 40_000  # documents up to which it does whoever these are, and of which FEW counts as a rate above
OWN = 0.5  # least share of the common shingles that belong to no template, for pairs below STRONG
WHOLLY = 0.98  # share of a text's shingles in a longer one, from which the shorter one may be contained as a whole
PARTLY = 0.2  # OWN for these: pages that hold nothing but a template are kept
STRONG = 0.8  # estimated Jaccard from which two documents are copies whatever they share (datatrove's MinHash)
# below this estimate no pair passes the verification: an estimate from 48 shingles is off by 0.14 once in a hundred,
# and of Chinese and Japanese less is asked (`verify_pairs.UNSPACED`)
JACCARD_SLACK = 0.2
CONTAINMENT_SLACK = 0.2
# a shingle that the documents of a pair have in common
COMMON = np.dtype([("hash", np.uint64), ("pair", np.uint32), ("one", np.uint64), ("other", np.uint64)])
# a pair that may be duplicates by the samples: numbers of documents; their sampled shingles in common; whether they are
# alike whatever they share; whether one may lie in the other as a whole
LIKELY = np.dtype([("one", "<i8"), ("other", "<i8"), ("common", "<i8"), ("strong", "?"), ("wholly", "?")])
# a pair worth reading, `one` seen before `other`; the share of their common shingles that belong to no template
CANDIDATE = np.dtype([("one", "<i8"), ("other", "<i8"), ("own", "<f4")])


def estimate_pairs(
    one: np.ndarray,
    other: np.ndarray,
    common: np.ndarray,
    documents: SeenDocuments,
    jaccard: float,
    containment: float,
) -> tuple[np.ndarray, np.ndarray]:
    """(those that may be duplicates among pairs that meet, LIKELY, by their whole samples; bool (P,): who are copies).

    :param one, other: (P,) the pairs. :param common: (P,) their sampled shingles in common.
    :param jaccard, containment: the thresholds of the verification.
    """
    scale = np.maximum(documents.scale[one], documents.scale[other])
    sizes = [documents.sampled[side, scale].astype(np.int64) for side in (one, other)]
    smaller, union = np.maximum(np.minimum(*sizes), 1), np.maximum(sizes[0] + sizes[1] - common, 1)
    jaccards = common / union
    strong = jaccards >= STRONG - JACCARD_SLACK * _uncertainty(union)
    near = strong | (jaccards >= jaccard - JACCARD_SLACK * _uncertainty(union))
    near |= common / smaller >= containment - CONTAINMENT_SLACK * _uncertainty(smaller)
    wholly = common >= WHOLLY * smaller
    made = records_of(LIKELY, one=one, other=other, common=common, strong=strong, wholly=wholly)
    return made[near], jaccards >= STRONG


def _uncertainty(sampled: np.ndarray) -> np.ndarray:
    """(P,) the standard deviation of a share estimated from so many sampled shingles (P,), that of one from 48 being 1.

    The number of common ones is binomial: of the union's for a Jaccard, of the smaller sample's for a containment.
    """
    return np.sqrt(48 / np.clip(sampled, 6, 48))


def part_of(documents: np.ndarray, parts: int) -> np.ndarray:
    """(n,) int64: the part that holds the samples of these documents (n,), and the pairs in which they come first."""
    return np.asarray(documents, np.int64) % parts


@dataclass(frozen=True)
class PairCodes:
    """Pairs of document numbers as one number each, uint64, ordered as (one, other); of the pairs of one part.

    The first document is numbered among the part's, of which there are some 131,072 (`postings.PARTITION`).
    """

    part: int
    parts: int

    def of(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """(P,) codes of the pairs of these documents (P,)."""
        return (one // self.parts).astype(np.uint64) << np.uint64(WIDTH) | other.astype(np.uint64)

    def ends(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(one, other): the document numbers (P,) int64 of codes (P,)."""
        first = (codes >> np.uint64(WIDTH)).astype(np.int64) * self.parts + self.part
        return first, (codes & np.uint64((1 << WIDTH) - 1)).astype(np.int64)


def meetings(shared: Shared, parts: int) -> tuple[np.ndarray, np.ndarray]:
    """(codes of the pairs that meet in a partition, once for each shingle they meet at; the part of each, int32)."""
    first = np.append(run_starts(shared.hash), len(shared.hash))
    asked = shared.document, shared.key, first, NEIGHBOURS, parts
    count = codes_of_meetings(*asked, np.empty(0, np.uint64), np.empty(0, np.int32))
    codes, part = np.empty(count, np.uint64), np.empty(count, np.int32)
    codes_of_meetings(*asked, codes, part)
    return codes, part


def pairs_that_met(codes: np.ndarray, pairs: PairCodes, documents: SeenDocuments) -> np.ndarray:
    """Codes of pairs, ascending, that share two keys, or one where the samples have room for few in common.

    :param codes: of all meetings of some pairs. :param pairs: what their codes say.
    """
    codes, met = np.unique(codes, return_counts=True)
    one, other = pairs.ends(codes)
    scale = np.maximum(documents.scale[one], documents.scale[other])
    room = np.minimum(documents.sampled[one, scale], documents.sampled[other, scale])
    return codes[(met > 1) | (room < KEYS // 2)]


class Samples:
    """The shingles that some documents sampled and share with others."""

    def __init__(self, found: np.ndarray, apart: int = 1) -> None:
        """:param found: (H,) WIDE, the document without a flag; those of each document ascending by hash.
        :param apart: any two documents differ by a multiple of it.
        """
        # a sort of documents with their places is faster than a stable one of documents
        documents, places = found["document"] // np.uint64(apart), np.arange(len(found), dtype=np.uint64)
        ordered = np.sort(documents << np.uint64(32) | places) & np.uint64(0xFFFF_FFFF)
        self._lay(found[ordered])

    @classmethod
    def in_runs(cls, found: np.ndarray) -> Samples:
        """Of WIDE (H,) in which those of each document lie together."""
        samples = cls.__new__(cls)
        samples._lay(found)
        return samples

    def _lay(self, found: np.ndarray) -> None:
        edges = np.append(run_starts(found["document"]), len(found))
        documents = found["document"][edges[:-1]].astype(np.int64)
        order = np.argsort(documents)
        self._documents, self._bounds = documents[order], np.stack([edges[:-1], edges[1:]], axis=1)[order]
        self._hashes = np.ascontiguousarray(found["hash"])

    def of(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(H,) WIDE of these documents (n,), of one after the other; (n + 1,) where those of each begin: some have
        none."""
        place = places_of(documents, self._documents)
        held = np.flatnonzero(place >= 0)
        runs = np.zeros((len(documents), 2), np.int64)
        runs[held] = self._bounds[place[held]]
        lengths = runs[:, 1] - runs[:, 0]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        found = np.empty(ends[-1], WIDE)
        at = np.repeat(runs[:, 0] - ends[:-1], lengths) + np.arange(len(found))
        found["hash"], found["document"] = self._hashes[at], np.repeat(documents, lengths)
        return found, ends

    def common(self, one: np.ndarray, others: Samples, other: np.ndarray) -> np.ndarray:
        """(P,) int64: how many shingles each of these documents has in common with one of the others', (P,) each."""
        return shared_by_pairs(*self._runs(one), *others._runs(other), np.empty(0, np.uint64))

    def commons(self, one: np.ndarray, others: Samples, other: np.ndarray, common: np.ndarray) -> np.ndarray:
        """COMMON: the shingles that the documents of each pair have in common. common: (P,) how many these are."""
        found = np.empty(int(common.sum()), COMMON)
        for name, values in (("pair", np.arange(len(common))), ("one", one), ("other", other)):
            found[name] = np.repeat(values, common)
        hashes = np.empty(len(found), np.uint64)
        shared_by_pairs(*self._runs(one), *others._runs(other), hashes)
        found["hash"] = hashes
        return found

    def _runs(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self._hashes, self._bounds, places_of(documents, self._documents)


def outside_templates(common: np.ndarray, shared: np.ndarray, copies: np.ndarray) -> np.ndarray:
    """(C,) bool: which of the shingles that pairs have in common belong to no template.

    A template's shingle is in more than FEW groups of copies. By chance a shingle comes in more and more documents as a
    corpus grows, in a template's documents together with others. So of more than CORPUS documents a shingle is a
    template's if its groups are more than FEW in CORPUS of the documents, as many as by chance before; or if more than
    FEW groups have it, one and those that pairs connect it with.

    :param common: (C,) COMMON of a partition, of all pairs that may be duplicates.
    :param shared: (H,) WIDE of the partition. :param copies: (N,) the group of each document.
    """
    hashes, groups = different(shared["hash"], copies[shared["document"]])
    number = np.searchsorted(hashes, common["hash"])
    few: np.ndarray = groups[number] <= most_groups(len(copies))
    asked = np.flatnonzero(few & (groups[number] > FEW))
    if len(asked):
        few[asked] = ~_in_families(number[asked], copies[common["one"][asked]], copies[common["other"][asked]])
    return few


def most_groups(documents: int) -> int:
    """How many groups of copies a shingle is in, at most, that belongs to no template whoever these are.

    Rounded, so that what was decided holds while little comes in.
    """
    return max(FEW, int(float(f"{FEW * documents / CORPUS:.2g}")))


def _in_families(shingle: np.ndarray, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(C,) bool: whether FEW groups or more have the shingle in common with one of the two. one, other: (C,) groups."""
    mine, theirs = np.concatenate([one, other]).astype(np.int64), np.concatenate([other, one]).astype(np.int64)
    keys = np.concatenate([shingle, shingle]) << WIDTH | mine
    key, beside = (np.unique(values, return_inverse=True)[1] for values in (keys, theirs))
    pairs = np.unique((key * len(key) + beside)[mine != theirs])
    many = np.bincount(pairs // max(len(key), 1), minlength=len(key)) >= FEW
    return many[key].reshape(2, -1).any(axis=0)
