"""Fitting a probe, and how good it is on documents, or groups of documents, that it has not seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression, Ridge, RidgeCV
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold, cross_val_predict

from datamask.errors import InputError
from datamask.quality.probe import Probe

FOLDS = 5
ALPHAS = np.logspace(-1, 5, 13)


@dataclass(frozen=True)
class Labels:
    """What a probe learns."""

    kind: Literal["class", "number"]
    values: np.ndarray  # (n,) float64; 0 and 1 for "class"
    positive: str | None  # the label that counts as 1
    groups: np.ndarray | None  # (n,) of any: documents of a group are never on both sides


def read_labels(values: Sequence[Any], groups: Sequence[Any] | None, positive: str | None, where: str) -> Labels:
    """Labels as found in a file: numbers, or two (or, with `positive`, more) values.

    :raises InputError: a label is null, or there are too few, or they are neither numbers nor two classes.
    """
    missing = [place for place, value in enumerate(values) if value is None or value != value]
    if missing:
        rows = ", ".join(map(str, missing[:10]))
        raise InputError(f"{where}: {len(missing)} rows have no label (rows {rows} …); leave them out of the file")
    if len(values) < 10 * FOLDS:
        raise InputError(f"{where}: {len(values)} labelled documents; at least {10 * FOLDS} are needed")
    found = sorted(set(values), key=str)
    grouped = None if groups is None else np.array([str(group) for group in groups])
    if positive is not None:
        if positive not in {str(value) for value in found}:
            shown = ", ".join(map(str, found[:20]))
            raise InputError(f"{where}: no label {positive!r} (there are: {shown})")
        return Labels("class", np.array([float(str(value) == positive) for value in values]), positive, grouped)
    if len(found) == 2:
        high = found[1] if not all(isinstance(value, int | float) for value in found) else max(found)
        return Labels("class", np.array([float(value == high) for value in values]), str(high), grouped)
    if len(found) < 2 or not all(isinstance(value, int | float) for value in found):
        raise InputError(
            f"{where}: labels are {', '.join(map(str, found[:5]))}{' …' if len(found) > 5 else ''}; expected numbers, "
            f"or two values, or --positive to name the good one"
        )
    return Labels("number", np.array(values, dtype=np.float64), None, grouped)


def fit_probe(features: np.ndarray, labels: Labels, seed: int) -> Probe:
    """Ridge regression on (n, d) standardised features, its strength chosen by leaving one out; for classes, of ±1,
    made a probability by Platt scaling (1999) of predictions on unseen thirds."""
    mean, scale = features.mean(axis=0), features.std(axis=0)
    scale = np.where(scale > 1e-9, scale, 1.0)
    standard = (features - mean) / scale
    targets = labels.values if labels.kind == "number" else 2 * labels.values - 1
    model = RidgeCV(ALPHAS).fit(standard, targets)
    if labels.kind == "number":
        return Probe("number", mean, scale, model.coef_, float(model.intercept_))
    thirds = StratifiedKFold(3, shuffle=True, random_state=seed).split(standard, labels.values)
    unseen = cross_val_predict(Ridge(model.alpha_), standard, targets, cv=list(thirds))
    platt = LogisticRegression(C=1e3).fit(unseen[:, None], labels.values)
    slope = max(float(platt.coef_[0, 0]), 1e-3)  # labels that cannot be predicted may turn it over
    return Probe(
        "class", mean, scale, slope * model.coef_, slope * float(model.intercept_) + float(platt.intercept_[0])
    )


def out_of_fold(features: np.ndarray, labels: Labels, seed: int, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Predictions (n,) by probes that have seen neither the document nor its group, and the fold (n,) of each.

    The strength of the regularisation is chosen anew inside each training part.

    :raises InputError: the groups leave a training part without one of the classes.
    """
    predicted = np.zeros(len(features))
    fold = np.zeros(len(features), dtype=np.int64)
    for number, (train, test) in enumerate(_folds(labels, seed, where)):
        part = Labels(labels.kind, labels.values[train], labels.positive, None)
        if labels.kind == "class" and min(np.bincount(part.values.astype(int), minlength=2)) < 3:
            raise InputError(
                f"{where}: without some groups no document of one class is left to learn from: labels and groups say "
                f"the same. Name another column with --group, or --group '' for none"
            )
        predicted[test] = fit_probe(features[train], part, seed).predict(features[test])
        fold[test] = number
    return predicted, fold


def _folds(labels: Labels, seed: int, where: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    groups = FOLDS if labels.groups is None else len(np.unique(labels.groups))
    if groups < 2:
        raise InputError(f"{where}: all documents are of one group; name another column with --group, or '' for none")
    alone, kept_apart = (StratifiedKFold, StratifiedGroupKFold) if labels.kind == "class" else (KFold, GroupKFold)
    splitter: Any = alone if labels.groups is None else kept_apart
    folds = splitter(min(FOLDS, groups), shuffle=True, random_state=seed)
    yield from folds.split(np.zeros(len(labels.values)), labels.values, labels.groups)


@dataclass(frozen=True)
class Agreement:
    """How well a score goes with the labels: AUC for classes, Spearman's ρ for numbers."""

    measure: str
    pooled: float  # over all documents
    folds: tuple[float, ...]  # within each fold that has both classes or different labels


def agreement(score: np.ndarray, labels: Labels, fold: np.ndarray) -> Agreement:
    """Of scores (n,) with the labels."""
    classes = labels.kind == "class"

    def measure(score: np.ndarray, values: np.ndarray) -> float:
        if len(np.unique(values)) < 2 or (len(np.unique(score)) < 2 and not classes):
            return float("nan")
        return float(roc_auc_score(values, score) if classes else spearmanr(score, values)[0])

    parts = [measure(score[fold == part], labels.values[fold == part]) for part in np.unique(fold)]
    told = tuple(value for value in parts if not np.isnan(value))
    return Agreement("AUC" if classes else "Spearman", measure(score, labels.values), told)


def compare(
    features: np.ndarray, others: Mapping[str, np.ndarray], labels: Labels, seed: int, where: str
) -> dict[str, Agreement]:
    """The probe in cross validation, and beside it, on the same folds, scores that need no fitting.

    :raises InputError: see `out_of_fold`.
    """
    predicted, fold = out_of_fold(features, labels, seed, where)
    return {"probe": agreement(predicted, labels, fold)} | {
        name: agreement(score, labels, fold) for name, score in others.items()
    }
