"""`select` against every selection there is, in pools of 2 to 14 documents.

    python benchmarks/fuzz_select.py --first 1000000 --instances 20000

An instance is made from its seed alone: features (Gaussian, clustered, duplicated, rank one, constant columns, a narrow
cone, axes; float16, 32 or 64), qualities (constant, binary, heavy-tailed, several columns), lengths over five decades,
a metric or a mix (coverage of counts, texts, a target and the embedding among them), a budget in
documents or tokens, documents taken up to three times, quotas and a length bound. What a selection is worth, and which
selections there are, is written here once more, in plain float64 NumPy: nothing of the package judges itself.

Counted are: bounds below the optimum, crashes, masks outside the limits, objectives that differ from their definition,
feasible instances that were refused, masks above their own bound, and other sets for another order of the documents.
"""

from __future__ import annotations

import argparse
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from datamask import select
from datamask.errors import DatamaskError, InputError

TOLERANCE = 1e-3  # to which limits in tokens hold, as docs/selection.md states: of the budget
BOUND, VALUE = 1e-9, 1e-6  # relative
SLOW = 10.0  # seconds of processor time, the judge's included
# no two of their n-grams share a bucket
WORDS = ["plinth", "vexed", "marrow", "tundra", "brisk", "cinder", "quilt", "gamut", "lapse", "hollow"]
VARIANCE, SHORT = 1e-8, 1e-6  # added to DiSF's variances; standardised rows shorter than that times √d count for less


@dataclass
class Instance:
    features: np.ndarray
    quality: np.ndarray  # (N, Q)
    tokens: np.ndarray
    groups: dict[str, np.ndarray]
    asked: dict[str, Any]
    weights: np.ndarray | None = None  # of the quality columns
    kind: str = ""
    counts: np.ndarray | None = None  # (N, J) of atoms, given as they are
    texts: list[str] | None = None  # instead of counts
    target: list[str] | None = None

    def run(self, order: np.ndarray | None = None) -> Any:
        rows = np.arange(len(self.tokens)) if order is None else order
        groups = {name: values[rows] for name, values in self.groups.items()}
        words: dict[str, Any] = {}
        if self.counts is not None:
            words["atoms"] = csr_array(self.counts[rows])
        if self.texts is not None:
            words = {"texts": [self.texts[row] for row in rows], "target": self.target}
        return select(
            self.features[rows], self.quality[rows], tokens=self.tokens[rows], groups=groups,
            quality_weights=self.weights, **words, **self.asked,
        )  # fmt: skip

    @property
    def repeat(self) -> int:
        return int(self.asked.get("repeat", 1))


# ---------------------------------------------------------------- instances


def make(seed: int, limited: bool | None = None, covered: bool | None = None) -> Instance:
    rng = np.random.default_rng(seed)
    count, width = int(rng.integers(2, 15)), int(rng.choice([1, 2, 3, 4, 8, 20, 40]))
    shape = str(rng.choice(["gaussian", "clusters", "duplicates", "rank one", "constant", "cone", "needle", "axes"]))
    features = _features(rng, shape, count, width)
    precision = rng.choice([np.float16, np.float32, np.float32, np.float64])
    features = features.astype(precision)
    features[~(np.abs(features) > 0).any(axis=1)] = 1
    kind = str(rng.choice(["uniform", "constant", "binary", "tails", "columns"]))
    quality = _quality(rng, kind, count)
    spans = {"short": (0, 1), "five decades": (0, 5), "alike": (2.9, 3.1)}
    lengths = str(rng.choice(list(spans)))
    tokens = np.maximum(1, np.round(10 ** rng.uniform(*spans[lengths], count)))
    groups = {"domain": rng.choice(list("abc"), count), "half": rng.choice(["x", "y"], count)}
    metrics: list[Any] = ["Pair_simi", "DiSF", "Facility", {"Pair_simi": 0.5, "DiSF": 0.5}]
    metric = metrics[rng.choice(4, p=[0.3, 0.4, 0.16, 0.14])]
    asked: dict[str, Any] = {
        "algorithm": metric,
        "lamb": float(rng.choice([0.0, 0.1, 0.5, 0.9, 1.0, rng.random()])),
        "calibrate": bool(rng.random() < 0.6),
        "seed": int(rng.integers(0, 3)),
    }
    unit = str(rng.choice(["documents", "ratio", "tokens"], p=[0.4, 0.2, 0.4]))
    if unit == "documents":
        asked["budget_documents"] = int(rng.integers(1, count + 1))
    elif unit == "ratio":
        asked["select_ratio"] = float(rng.uniform(0.5 / count + 1e-6, 1))
    else:
        low = float(tokens.min())
        asked["budget_tokens"] = max(int(low), int(rng.uniform(low, tokens.sum())))
    if rng.random() < 0.4 if limited is None else limited:
        _limits(rng, asked, groups)
    weights = rng.random(quality.shape[1]) + 0.1 if kind == "columns" else None
    made = Instance(features, quality, tokens, groups, asked, weights, f"{shape}/{kind}/{lengths}/{unit}")
    if covered is None:
        covered = bool(rng.random() < 0.25)
    return _with_words(rng, made) if covered else made


def _with_words(rng: np.random.Generator, instance: Instance) -> Instance:
    """The same pool under a metric whose state is linear in the mask, or a mix with one."""
    asked = dict(instance.asked)
    count = len(instance.tokens)
    mixes: list[Any] = ["coverage", {"coverage": 0.6, "Pair_simi": 0.4}, {"coverage": 0.5, "DiSF": 0.5}]
    asked["algorithm"] = mixes[rng.choice(3, p=[0.8, 0.1, 0.1])]
    if "coverage" in asked["algorithm"]:
        parts: list[dict[str, float]] = [
            {"ngrams": 1}, {"embedding": 1}, {"target": 1},
            {"ngrams": 0.5, "embedding": 0.5}, {"target": 0.5, "embedding": 0.5}, {"ngrams": 0.3, "target": 0.7},
        ]  # fmt: skip
        atoms = parts[rng.integers(0, 6)]
        asked["coverage"] = {
            "atoms": atoms,
            "leaks": True,
            "document_weights": str(rng.choice(["quality", "quality", "equal"])),
            "smoothing": float(rng.choice([0.02, 0.2, 1e-4])),
            "temperature": float(rng.choice([0.1, 1.0])),
            "curve": str(rng.choice(["likelihood", "saturating"])),
            "buckets": int(rng.choice([10_000, 1 << 18])),
        }
        if {"ngrams", "target"} & set(atoms):
            if "target" in atoms or rng.random() < 0.3:
                likely = rng.dirichlet(np.full(len(WORDS), rng.choice([0.1, 1.0])), count)
                instance.texts = [" ".join(rng.choice(WORDS, rng.integers(1, 40), p=p)) for p in likely]
                known = sorted({word for text in instance.texts for word in text.split()})
                instance.target = [" ".join(rng.choice(known, 30)) for _ in range(2)] if "target" in atoms else None
            else:
                width = int(rng.choice([1, 3, 12, 60]))
                instance.counts = rng.poisson(rng.choice([0.3, 3.0]), (count, width)).astype(np.float32)
                instance.counts[rng.integers(0, count), 0] += 1
                if rng.random() < 0.3:
                    instance.counts[:, rng.integers(0, width)] *= 1000
    if "budget_tokens" in asked and rng.random() < 0.35:
        asked["repeat"] = int(rng.integers(2, 4))
        kept = min(count, 7 if asked["repeat"] == 3 else 8)
        first = slice(0, kept)
        for name in ("features", "quality", "tokens"):
            setattr(instance, name, getattr(instance, name)[first])
        instance.groups = {name: values[first] for name, values in instance.groups.items()}
        instance.counts = None if instance.counts is None else instance.counts[first]
        instance.texts = None if instance.texts is None else instance.texts[first]
        if instance.counts is not None:
            instance.counts[0, 0] += 1
        total, least = asked["repeat"] * float(instance.tokens.sum()), float(instance.tokens.min())
        asked["budget_tokens"] = max(int(least), int(rng.uniform(least, total)))
        asked.pop("quotas", None), asked.pop("length_tolerance", None)
        if rng.random() < 0.2:
            _limits(rng, asked, instance.groups)
    instance.asked = asked
    return instance


def _features(rng: np.random.Generator, shape: str, count: int, width: int) -> np.ndarray:
    plain = rng.standard_normal((count, width))
    if shape == "clusters":
        return 2 * rng.standard_normal((3, width))[rng.integers(0, 3, count)] + 0.3 * plain
    if shape == "duplicates":
        return plain[rng.integers(0, max(1, count // 2), count)] * rng.choice([1.0, 2.0, 0.3], (count, 1))
    if shape == "rank one":
        return rng.standard_normal((count, 1)) * rng.standard_normal(width) + rng.choice([0.0, 1e-5]) * plain
    if shape == "constant":
        plain[:, rng.random(width) < 0.5] = 10 ** rng.uniform(-3, 1)
        plain[:, 0] = 10 ** rng.uniform(-3, 1) * (1 + rng.choice([0.0, 1e-6, 1e-3]) * rng.standard_normal(count))
    if shape == "cone":
        common = rng.standard_normal(width)
        return common / np.linalg.norm(common) + 10 ** rng.uniform(-6, -0.3) * plain
    if shape == "needle":
        rows = np.ones((count, width)) + 0.01 * plain
        rows[:1] = plain[:1]
        return rows
    if shape == "axes":
        return np.eye(width)[rng.integers(0, width, count)] * rng.choice([-1.0, 1.0], (count, 1))
    return plain


def _quality(rng: np.random.Generator, kind: str, count: int) -> np.ndarray:
    if kind == "constant":
        return np.full((count, 1), rng.standard_normal())
    if kind == "binary":
        return rng.integers(0, 2, (count, 1)).astype(float)
    if kind == "tails":
        return np.exp(3 * rng.standard_normal((count, 1)))
    return rng.random((count, 3 if kind == "columns" else 1))


def _limits(rng: np.random.Generator, asked: dict[str, Any], groups: dict[str, np.ndarray]) -> None:
    quotas: list[dict[str, Any]] = []
    for column in [["domain"], ["half"], ["domain", "half"], []][rng.integers(0, 4)]:
        names = sorted(set(groups[column]))
        chosen = str(rng.choice(names))
        share = float(rng.choice([0.2, 0.4, 0.6]))
        quota = [
            {"minimum": {chosen: share}},
            {"maximum": {chosen: share}},
            {"as_pool": float(rng.choice([0, 0.1, 0.3]))},
        ]
        quotas.append({"column": column, **quota[rng.integers(0, 3)]})
    if quotas:
        asked["quotas"] = quotas
    if not quotas or rng.random() < 0.3:
        asked["length_tolerance"] = float(rng.choice([0.0, 0.05, 0.2, 0.5, 1.5]))


# ---------------------------------------------------------------- the definition


@dataclass
class Definition:
    """Every selection within the budget and the limits, and what each is worth."""

    instance: Instance
    masks: np.ndarray = field(init=False)  # ((1 + repeat)^N, N)
    allowed: np.ndarray = field(init=False)  # one a mask

    def __post_init__(self) -> None:
        count, base = len(self.instance.tokens), 1 + self.instance.repeat
        numbers = np.arange(base**count)[:, None]
        self.masks = (numbers // base ** np.arange(count) % base).astype(float)
        self.x = unit(self.instance.features.astype(np.float64))
        self.allowed = np.array(self._allowed(self.masks))

    @property
    def budget(self) -> tuple[np.ndarray, float, float]:
        """Weights (N,), size, and the most that may be left unspent."""
        asked, tokens = self.instance.asked, self.instance.tokens
        count = len(tokens)
        if "budget_tokens" in asked:
            size = float(asked["budget_tokens"])
            if (tokens == 1).all():  # as many documents: one more fits wherever a token is left
                return tokens, size, 0.0
            slack = unspent(np.repeat(tokens, self.instance.repeat), size)
            return tokens, size, slack if not self._limited else max(slack, TOLERANCE * size)
        size = float(asked["budget_documents"] if "budget_documents" in asked else round(asked["select_ratio"] * count))
        return np.ones(count), size, 0.0

    @property
    def _limited(self) -> bool:
        return "quotas" in self.instance.asked or "length_tolerance" in self.instance.asked

    def _allowed(self, masks: np.ndarray) -> np.ndarray:
        weights, size, slack = self.budget
        asked, tokens = self.instance.asked, self.instance.tokens
        in_tokens = "budget_tokens" in asked
        spent, grain = masks @ weights, 1e-9 * size
        good = (spent <= size + grain) & (spent >= size - slack - grain) & masks.any(axis=1)
        forgiven = TOLERANCE * size if in_tokens else 0.0
        for quota in asked.get("quotas", []):
            values = self.instance.groups[quota["column"]]
            for name in sorted(set(values)):
                inside = masks @ (weights * (values == name))
                share = (weights * (values == name)).sum() / weights.sum()
                low, high = 0.0, size
                if "as_pool" in quota:
                    low, high = max(0.0, share - quota["as_pool"]) * size, min(1.0, share + quota["as_pool"]) * size
                    if not in_tokens:
                        low, high = np.floor(low + 1e-9), np.ceil(high - 1e-9)
                if name in quota.get("minimum", {}):
                    low = quota["minimum"][name] * size
                    low = low if in_tokens else np.ceil(low - 1e-9)
                if name in quota.get("maximum", {}):
                    high = quota["maximum"][name] * size
                    high = high if in_tokens else np.floor(high + 1e-9)
                good &= (inside >= low - forgiven - grain) & (inside <= high + forgiven + grain)
        if "length_tolerance" in asked:
            mean, share = tokens.mean(), asked["length_tolerance"]
            if in_tokens:  # so many documents
                found, low = masks.sum(axis=1), size / (mean * (1 + share))
                high = size / (mean * (1 - share)) if share < 1 else np.inf
                forgiven = (TOLERANCE + 1e-9) * size / mean
            else:
                found, low, high = masks @ tokens, size * mean * (1 - share), size * mean * (1 + share)
                forgiven = (TOLERANCE + 1e-9) * size * mean
            good &= (found >= low - forgiven) & (found <= high + forgiven)
        return good

    def raw(self, name: str, masks: np.ndarray) -> np.ndarray:
        weights, size, _ = self.budget
        if name.startswith("quality"):
            column = int(name.partition("_")[2] or 0)
            return masks @ (weights * self.instance.quality[:, column]) / size
        if name == "facility":
            cosine = self.x @ self.x.T
            best = np.full(masks.shape, -np.inf)
            for row in range(len(cosine)):
                best = np.where(masks[:, [row]] > 0, np.maximum(best, cosine[row]), best)
            return np.where(np.isfinite(best), best, 0).mean(axis=1)
        taken = masks * weights / size
        if name.startswith("coverage"):
            return self._coverage(name.removeprefix("coverage-"), taken)
        z = self.x if name == "pairwise" else standardised(self.x, self.instance.features.dtype)
        kernel = z @ z.T
        scale = 1.0
        if name == "disf":
            kernel, scale = kernel**2 - z**2 @ (z**2).T, 1e-4
        taken = masks * weights
        return -scale * ((taken @ kernel) * taken).sum(axis=1) / size**2

    def _coverage(self, part: str, shares: np.ndarray) -> np.ndarray:
        """Σ_j t_j log of the choice's smoothed mixture over the pool's; atoms that no document has are left out."""
        instance, weights = self.instance, self.budget[0]
        settings = instance.asked["coverage"]
        if part == "embedding":
            rows = np.exp((self.x @ self.x.T - 1) / settings["temperature"])  # every document is an anchor
            t = np.full(len(rows), 1 / len(rows))
        else:
            counts, wanted = instance.counts, None
            if instance.texts is not None:
                names: dict[Any, int] = {}
                listed = [ngrams_of(text) for text in [*instance.texts, *(instance.target or [])]]
                for ngram in [ngram for found in listed for ngram in found]:
                    names.setdefault(ngram, len(names))
                table = np.zeros((len(listed), len(names)))
                for row, found in enumerate(listed):
                    for ngram in found:
                        table[row, names[ngram]] += 1
                counts, wanted = table[: len(instance.texts)], table[len(instance.texts) :].sum(axis=0)
            assert counts is not None
            counts = counts.astype(np.float64)
            totals = counts.sum(axis=1, keepdims=True)
            if part == "ngrams" and settings["curve"] == "saturating":
                held, size = (counts > 0).astype(np.float64), self.budget[1]
                taken = [shares * size / weights, np.full((1, len(weights)), size / weights.sum())]
                chosen, whole = ((1 - 0.5 ** (times @ held)).sum(axis=1) for times in taken)
                return (chosen - whole) / held.any(axis=0).sum()
            rows = counts / np.maximum(totals, 1)
            t = wanted
            if part == "ngrams":
                by = self._worth() if settings["document_weights"] == "quality" else np.ones(len(rows))
                t = (weights * by) @ rows
                t = t if t.sum() > 0 else weights @ rows
            assert t is not None
            t = t / t.sum()
        pool = weights @ rows / weights.sum()
        used = (t > 0) & (pool > 0)
        level = (1 - settings["smoothing"]) * (shares @ rows) + settings["smoothing"] * pool
        return np.log(level[:, used]) @ t[used] - t[used] @ np.log(pool[used])

    def _worth(self) -> np.ndarray:
        """By how much documents count in the words to be covered: quality from 0, or its 5 % quantile below 0, to its
        95 % quantile."""
        columns = self.instance.quality.astype(np.float64)
        total = np.zeros(len(columns))
        shares = np.ones(columns.shape[1]) if self.instance.weights is None else np.asarray(self.instance.weights)
        for share, column in zip(shares / shares.sum(), columns.T, strict=True):
            low, high = min(0.0, float(np.quantile(column, 0.05))), float(np.quantile(column, 0.95))
            total += share * (np.clip((column - low) / (high - low), 0, 1) if high > low else 1.0)
        return total

    def values(self, scales: dict[str, Any], masks: np.ndarray) -> np.ndarray:
        """f by the run's own calibration: Σ scale · (raw − zero)."""
        total = np.zeros(len(masks))
        for name, term in scales.items():
            if term["scale"]:
                total += term["scale"] * (self.raw(name, masks) - term["zero"])
            else:
                total -= 0.0
        return total


def ngrams_of(text: str) -> list[tuple[str, ...]]:
    words = text.split()
    return [*((word,) for word in words), *pairwise(words)]


def unit(rows: np.ndarray) -> np.ndarray:
    rows = rows / np.abs(rows).max(axis=1, keepdims=True)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def standardised(x: np.ndarray, stored: np.dtype) -> np.ndarray:
    """DiSF's z: over the pool, columns that vary by less than their storage resolves left out, rows of length √d."""
    deviation = x.std(axis=0, ddof=1) if len(x) > 1 else np.zeros(x.shape[1])
    resolved = deviation > 4 * max(np.finfo(stored).eps, 4e-16) * np.sqrt((x**2).mean(axis=0))
    z = np.where(resolved, (x - x.mean(axis=0)) / np.sqrt(deviation**2 + VARIANCE), 0)
    length = np.linalg.norm(z, axis=1, keepdims=True)
    root = np.sqrt(x.shape[1])
    return z * root / np.maximum(length, SHORT * root)


def unspent(tokens: np.ndarray, size: float) -> float:
    """The most a selection can leave of a budget that no further document fits."""
    ordered = np.sort(tokens)
    before = np.concatenate([[0.0], np.cumsum(ordered)])  # of the documents shorter than what is left
    most = 0.0
    for shorter, after in zip(before, [*ordered, np.inf], strict=True):
        most = max(most, min(after, size - shorter)) if shorter <= size else most
    return most


# ---------------------------------------------------------------- the judge


def judge(instance: Instance, permute: np.random.Generator | None = None) -> list[str]:
    """What is wrong with the answer, in words; [] if nothing."""
    truth = Definition(instance)
    possible = bool(truth.allowed.any())
    try:
        found = instance.run()
    except InputError as error:
        if not possible or "stored" in str(error):
            return []
        return [f"refused: feasible, {str(error)[:100]}"]
    except DatamaskError as error:
        return ["refused: " + str(error)[:100]] if possible else []
    except Exception:
        return ["crash: " + traceback.format_exc(limit=-1).strip().replace("\n", " | ")[-200:]]
    problems = []
    times = found.selected if found.repeat is None else found.repeat
    mask = times.astype(float)[None]
    if not truth._allowed(mask)[0]:
        problems.append("limits: " + ("a mask outside" if possible else "infeasible, and not refused"))
    value = float(truth.values(found.scales, mask)[0])
    scale = 1 + abs(value)
    if abs(value - found.objective) > VALUE * scale:
        problems.append(f"value: {found.objective:.9g} is {value:.9g} by definition")
    if found.upper_bound is not None:
        if found.objective > found.upper_bound + 1e-12 * scale:
            problems.append(f"own bound: {found.objective:.12g} above {found.upper_bound:.12g}")
        if possible:
            best = float(truth.values(found.scales, truth.masks[truth.allowed]).max())
            if best > found.upper_bound + BOUND * (1 + abs(best)):
                problems.append(f"bound: {found.upper_bound:.9g} where {best:.9g} is possible")
    if permute is not None:
        order = permute.permutation(len(instance.tokens))
        try:
            again = instance.run(order)
        except Exception as error:
            return [*problems, f"order: {str(error)[:100]}"]
        others = again.selected.astype(int) if again.repeat is None else again.repeat
        if not same_documents(instance, np.repeat(np.arange(len(order)), times), np.repeat(order, others)):
            problems.append(f"order: objective {found.objective:.9g}, permuted {again.objective:.9g}")
    return problems


def same_documents(instance: Instance, one: np.ndarray, other: np.ndarray) -> bool:
    """Whether these rows hold the same documents: equal ones may stand for one another."""

    def content(index: np.ndarray) -> list[bytes]:
        columns = [values[index].astype("U1") for values in instance.groups.values()]
        words = [] if instance.counts is None else [instance.counts[index]]
        words += [] if instance.texts is None else [np.array(instance.texts)[index]]
        parts = zip(
            instance.features[index], instance.quality[index], instance.tokens[index], *columns, *words, strict=True
        )
        return sorted(b"|".join(np.asarray(value).tobytes() for value in part) for part in parts)

    return content(one) == content(other)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=1_000_000, help="seed of the first instance")
    parser.add_argument("--instances", type=int, default=2000)
    parser.add_argument("--permuted", type=float, default=0.15, help="share judged in another order of documents too")
    parser.add_argument("--covered", choices=["yes", "no"], help="only instances of coverage and spectra, or without")
    parser.add_argument("--limited", choices=["yes", "no"], help="only instances with, or without limits")
    arguments = parser.parse_args()
    limited = None if arguments.limited is None else arguments.limited == "yes"
    covered = None if arguments.covered is None else arguments.covered == "yes"
    counts: Counter[str] = Counter()
    started = time.process_time()
    for seed in range(arguments.first, arguments.first + arguments.instances):
        rng = np.random.default_rng([seed, 1])
        instance = make(seed, limited, covered)
        begun = time.process_time()
        problems = judge(instance, rng if rng.random() < arguments.permuted else None)
        if (spent := time.process_time() - begun) > SLOW:
            problems.append(f"slow: {spent:.0f} s")
        for problem in problems:
            counts[problem.partition(":")[0]] += 1
            print(f"{seed} {instance.kind} {instance.asked}: {problem}", flush=True)
        if (done := seed - arguments.first + 1) % 1000 == 0 or done == arguments.instances:
            print(f"{done:,} instances, {time.process_time() - started:.0f} s of processor time", flush=True)
    names = ["bound", "own bound", "value", "limits", "refused", "crash", "order", "slow"]
    print("| instances | " + " | ".join(names) + " |")
    print("|---" * (len(names) + 1) + "|")
    print(f"| {arguments.instances:,} | " + " | ".join(str(counts[name]) for name in names) + " |")


if __name__ == "__main__":
    main()
