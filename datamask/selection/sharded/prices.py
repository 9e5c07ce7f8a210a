"""Prices: each document's marginal value to a finished selection, by which new documents are scored in one pass.

    price_i = linear·q_i − 2 Σ_m c_m ⟨M_m, v_i⟩      (per unit of the budget; M the selection's moments)

What the limits charge is not in it: a value of a column that is new to the selection has no dual price of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from datamask.errors import InputError
from datamask.npy import load_named
from datamask.selection.cover.atoms import hit_rows, kernel, shares
from datamask.selection.metrics.coverage import Coverage
from datamask.selection.metrics.disf import whiten
from datamask.selection.problem.objective import Term
from datamask.selection.problem.pool import Pool

ROWS = 8192  # documents scored at a time


@dataclass(frozen=True, eq=False)
class Prices:
    """Everything needed to score a new document, as numpy arrays and numbers, so that it is saved without pickle."""

    quality: np.ndarray  # (Q,) per raw unit of each quality column
    linear: np.ndarray  # (d,) of unit features (pairwise)
    square: np.ndarray  # (d, d) of standardised features (DiSF), (0, 0) if none
    mean: np.ndarray  # (d,)
    deviation: np.ndarray  # (d,)
    token_weighted: bool = False
    anchors: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.float32))  # (a, d) of coverage's kernel
    anchor_price: np.ndarray = field(default_factory=lambda: np.zeros(0))  # (a,)
    temperature: float = 0.1
    words: np.ndarray = field(default_factory=lambda: np.zeros(0))  # (J,) of shares of hashed n-grams
    hits: np.ndarray = field(default_factory=lambda: np.zeros(0))  # (J,) of hashed n-grams that saturate
    complete: bool = True  # False if a metric's gains are not linear in a moment: new documents cannot be scored

    def save(self, path: Path) -> None:
        """Writes an .npz file whose bytes depend only on the values."""
        with path.open("wb") as file:
            arrays: dict[str, Any] = {name: np.asarray(value) for name, value in vars(self).items()}
            np.savez(file, **arrays)

    @classmethod
    def load(cls, file: IO[bytes]) -> Prices:
        """Reads a file that `save` wrote."""
        names = {each.name for each in fields(cls)}
        stored: dict[str, Any] = {name: value for name, value in load_named(file).items() if name in names}
        stored["temperature"] = float(stored["temperature"])
        for name in ("token_weighted", "complete"):
            stored[name] = bool(stored.get(name, False))
        return cls(**stored)

    @property
    def reads_words(self) -> bool:
        """Whether documents are scored by their words."""
        return bool(len(self.words) or len(self.hits))

    def score(
        self, features: Any, quality: Any, device: torch.device, ngrams: Any = None, weights: Any = None
    ) -> np.ndarray:
        """(N,) float32: price per unit of the budget. features: (N, d); quality: (N,) or (N, Q); ngrams: (N, J) counts;
        weights: (N,) units of the budget.

        :raises InputError: features of another width, or as `Pool`.
        """
        pool = Pool(features, quality, device=device)
        if pool.dimensions != len(self.mean):
            raise InputError(
                f"the prices are of features of {len(self.mean)} dimensions, these have {pool.dimensions}; "
                "embed all shards with one encoder"
            )
        linear = torch.from_numpy(self.linear).to(device, torch.float32)
        square = torch.from_numpy(self.square).to(device, torch.float32)
        mean = torch.from_numpy(self.mean).to(device, torch.float32)
        deviation = torch.from_numpy(self.deviation).to(device, torch.float32)
        price = pool.quality @ self.quality
        for part, rows in pool.blocks(ROWS):
            total = rows @ linear
            if len(square):
                z = whiten(rows, mean, deviation)
                total = total + ((z @ square) * z).sum(dim=1)
            price[part] += total.double().cpu().numpy()
        if len(self.anchors):
            price += kernel(pool, self.anchors, self.temperature).scores(self.anchor_price)
        if self.reads_words:
            if ngrams is None:
                raise InputError("the prices are of words too; documents need their texts to be scored by them")
            if len(self.words):
                price += shares(ngrams).scores(self.words)
            if len(self.hits):
                price += hit_rows(ngrams, weights).scores(self.hits)
        return price.astype(np.float32)


def make_prices(
    quality: Sequence[Term],
    diversity: Sequence[Term],
    moments: Sequence[torch.Tensor | None],
    width: int,
    size: float,
    token_weighted: bool,
) -> Prices:
    """The prices of a finished selection.

    moments: each diversity term's exact moment or state, None where its gains are not linear in one. width: d of the
    features; size: the budget; token_weighted: whether the budget counts tokens.
    """
    linear, square = np.zeros(width), np.zeros((0, 0))
    mean, deviation = np.zeros(width), np.ones(width)
    covered: dict[str, Any] = {}
    for term, moment in zip(diversity, moments, strict=True):
        if moment is None or term.metric is None:
            continue
        if isinstance(term.metric, Coverage):
            metric, atoms = term.metric, term.metric.atoms
            slope = term.scale / size * metric.slope(moment.cpu().numpy())
            first, bend = len(atoms.anchors), atoms.bend
            if first:
                covered |= {"anchors": atoms.anchors, "temperature": metric.settings.coverage.temperature}
                covered["anchor_price"] = covered.get("anchor_price", 0) + slope[:first]
            for name, own in (("words", slope[first:bend]), ("hits", slope[bend:])):
                if own.any():
                    covered[name] = covered.get(name, 0) + own
            continue
        unit = term.metric.unit  # type: ignore[attr-defined]
        scaled = -2 * term.scale * unit / size**2 * moment.double().cpu().numpy()
        if scaled.ndim == 1:
            linear = linear + scaled
        else:
            square = scaled
            mean, deviation = (value.cpu().numpy() for value in term.metric.standard)  # type: ignore[attr-defined]
    per_unit = np.array([term.scale / size for term in quality])
    unknown = any(moment is None and term.scale for moment, term in zip(moments, diversity, strict=True))
    return Prices(
        per_unit, linear, square, mean, deviation, token_weighted=token_weighted, complete=not unknown, **covered
    )
