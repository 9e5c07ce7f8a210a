"""Compiles the inner loops of the default pipeline and bundles the report's JavaScript, so that the first run does not
wait for it (`make` does it once).

    python -m datamask.precompile

Each is called as the pipeline calls it, on next to nothing: Numba compiles for the types that it meets, and keeps what
it made beside the modules.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import torch

from datamask.encoders.static import fit_static
from datamask.filter.altered import CopyCounts
from datamask.filter.duplicate_candidates import Samples, meetings
from datamask.filter.held_texts import HeldTexts
from datamask.filter.intact import pairs_of
from datamask.filter.postings import WIDE, postings_of, shared_of
from datamask.filter.shingles import likeness
from datamask.filter.signatures import sign_texts
from datamask.models.tokens import DocumentTokenizer
from datamask.quality import pool_model as pool
from datamask.quality.signals import compute
from datamask.report import page
from datamask.selection.arrays import select
from datamask.selection.cover.atoms import beside, shares
from datamask.selection.cover.compiled import Curves, csr_of, taken_rows
from datamask.selection.cover.greedy_search import grow_greedily, improve
from datamask.selection.cover.sharpen import sharpen
from datamask.selection.cover.tangent import Concave, maximise
from datamask.selection.metrics.coverage import SummedCoverage
from datamask.selection.problem.feasible import Feasible
from datamask.selection.problem.levels import CLIPPED, Levels
from datamask.selection.problem.limits import LENGTH, LimitKind, Limits
from datamask.text.ngrams import count_ngrams
from datamask.text.text_hashes import text_hashes


def precompile() -> None:
    """Calls every compiled loop once, and makes what else a first run would keep."""
    texts = [f"One text of number {number}, and a few words more: it's <b>all</b> there is." for number in range(40)]
    _words(texts)
    _duplicates(texts)
    _coverage()
    _swaps()
    page.library()


def _words(texts: list[str]) -> None:
    tokenizer = DocumentTokenizer(fit_static(texts, vocabulary=300, dimensions=8, max_length=32, seed=0).tokenizer)
    tokenizer.count(texts)
    CopyCounts(pool.fit_pool_model(texts, [None] * len(texts))).altered([(texts[0], texts[1])])
    compute(texts)
    count_ngrams(texts)
    sign_texts(pa.array(range(len(texts))), pa.array(texts))
    text_hashes(pa.array(texts))


def _duplicates(texts: list[str]) -> None:
    lengths, hashes = np.ones(2, np.int64), np.array([1, 1], np.uint64)
    postings = postings_of(lengths, hashes)
    postings = postings.astype(WIDE)
    meetings(shared_of(postings, lengths), 1)
    samples, nobody = Samples(postings), np.zeros(1, np.int64)
    samples.commons(nobody, samples, nobody, samples.common(nobody, samples, nobody))
    library = HeldTexts(lambda documents: [(documents, pa.array(texts[:1], pa.large_string()))], nobody, nobody)
    library.hold(nobody)
    held = library[0]
    likeness(held.shingles, held.shingles)
    pairs_of([held], nobody, nobody, 0.0, 0.0, 0.0)


def _mapped(values: np.ndarray) -> np.ndarray:
    """As arrays are that are mapped from files: nobody writes to them, and loops are compiled for that."""
    values.flags.writeable = False
    return values


def _coverage() -> None:
    generator, documents, atoms, each = np.random.default_rng(0), 64, 50, 8
    index = np.sort(generator.integers(atoms, size=(documents, each)), axis=1).ravel()
    start = np.arange(documents + 1, dtype=np.int64) * each
    counts = csr_of(start, index.astype(np.int32), np.full(len(index), 1 / each, np.float32), atoms)
    rows = shares(counts)
    uniform = np.full(atoms, 1 / atoms)
    joint = SummedCoverage(rows, uniform, uniform, 0.01, 0.0, Curves.of(uniform, atoms // 2, 1.0))
    limits = Limits(np.ones(documents), 8.0)
    linear = generator.random(documents)
    rows.within(np.arange(atoms) > 0)
    for kind in (np.float32, np.float64):  # as in a pool, and in a small one
        exact = shares(counts, kind)
        exact.state(linear)
        exact.scores(uniform)
        exact.curvatures(uniform)
        beside(exact, exact)
        summed = replace(joint, rows=exact)
        grow_greedily(summed, linear, limits)
        improve(summed, linear, limits, np.arange(documents) < 8, 1.0)
    mass, nothing = np.full(documents, 1 / 8), np.zeros(documents)
    read = start, _mapped(rows.index.copy()), _mapped(np.ones(len(index), np.uint32))
    taken_rows(read, np.arange(8), (np.int32, np.float32))
    start_at, feasible = torch.full((documents,), 1 / 8, dtype=torch.float64), Feasible(limits)
    maximise(Concave([joint], [1.0], torch.from_numpy(linear), feasible, 8), start_at, 0.0, 2, lambda step: None)
    sharpen(joint, mass, linear, start_at.numpy(), nothing, limits)
    quotas = LimitKind(np.arange(documents) % 2, np.ones(documents))
    for names in ("a", "b"), ("a", LENGTH):
        ends = np.zeros(2), np.full(2, 8.0), np.ones(2)
        Levels(Limits(np.ones(documents), 8, names, *ends, (quotas,))).solve(torch.from_numpy(linear), CLIPPED)


def _swaps() -> None:
    generator = np.random.default_rng(0)
    select(generator.normal(size=(64, 8)), generator.random(64), budget_documents=8, algorithm="Pair_simi")


if __name__ == "__main__":
    precompile()
