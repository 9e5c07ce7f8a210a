"""A metric of the user's own, registered by the entry point of a distribution that is installed for the test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from datamask import extensions, select
from datamask.config import Select, resolve
from datamask.errors import ConfigError
from datamask.selection.calibration import make_problem
from datamask.selection.candidates import read_pool
from datamask.selection.problem.pool import Pool, in_order_of_content

MODULE = '''
"""Two metrics: the widest angle that separates every pair, and the volume that the selected features span."""

import torch


class Dispersion:
    """Minus the greatest cosine of two selected documents: known only by its values."""

    name = "dispersion"

    def __init__(self, pool, weights, size):
        self.rows = torch.cat([rows.double() for _, rows in pool.blocks()])

    def value(self, masks):
        cosines = self.rows @ self.rows.T - 2 * torch.eye(len(self.rows), dtype=torch.float64)
        pairs = masks.bool()[:, :, None] & masks.bool()[:, None]
        return -torch.where(pairs, cosines, -torch.inf).amax((1, 2))


class Volume:
    """ln det(I + Σ p_i x_i x_iᵀ): concave in the mask, so it can be relaxed."""

    name = "volume"

    def __init__(self, pool, weights, size):
        self.rows = torch.cat([rows.double() for _, rows in pool.blocks()])

    def spread(self, mask):
        return torch.eye(self.rows.shape[1], dtype=torch.float64) + (self.rows * mask.double()[:, None]).T @ self.rows

    def value(self, masks):
        of_each = (self.rows * masks.double()[:, :, None]).mT @ self.rows
        return torch.logdet(torch.eye(self.rows.shape[1], dtype=torch.float64) + of_each)

    def relaxed(self, mask):
        spread = self.spread(mask)
        return float(torch.logdet(spread)), ((self.rows @ torch.linalg.inv(spread)) * self.rows).sum(1)


class Empty:
    name = "empty"


class Domains:
    """√ of each domain's share: reads a column."""

    name = "domains"
    columns = ("domain",)

    def __init__(self, pool, weights, size):
        names = sorted(set(pool.groups["domain"]))
        self.part = torch.tensor([[float(v == n) for n in names] for v in pool.groups["domain"]]).double() / size

    def value(self, masks):
        return (masks.double() @ self.part).sqrt().sum(1)
'''
ENTRIES = """[datamask.metrics]
Dispersion = user_metrics:Dispersion
volume = user_metrics:Volume
empty = user_metrics:Empty
domains = user_metrics:Domains
absent = user_metrics:Nothing
"""


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("site")
    (folder / "user_metrics.py").write_text(MODULE)
    distribution = folder / "user_metrics-1.0.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: user-metrics\nVersion: 1.0\n")
    (distribution / "entry_points.txt").write_text(ENTRIES)
    sys.path.insert(0, str(folder))
    extensions.registered.cache_clear()  # a process that starts after the installation finds it by itself
    yield folder
    sys.path.remove(str(folder))
    extensions.registered.cache_clear()


def documents(count: int, width: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    label = generator.integers(0, 5, count)
    features = 1.5 * generator.standard_normal((5, width))[label] + generator.standard_normal((count, width))
    return features, generator.random(count) + 0.3 * label


def everything(features: np.ndarray, quality: np.ndarray, settings: Select) -> torch.Tensor:
    """f of every selection within the budget, on `select`'s scale: its draws take the pool in the order of content."""
    pool = Pool(features, quality)
    problem = make_problem(pool.take(in_order_of_content(pool, settings.seed)), settings)
    sets = list(combinations(range(len(quality)), int(problem.size)))
    masks = torch.zeros(len(sets), len(quality), dtype=torch.bool)
    masks[torch.arange(len(sets))[:, None], torch.tensor(sets)] = True
    return problem.objective.values(masks)


def test_registered_names_are_listed() -> None:
    own = ["absent", "dispersion", "domains", "empty", "volume"]
    assert extensions.extension_names("metric") == [*extensions.BUILT_IN["metric"], *own]
    with pytest.raises(ConfigError, match="unknown algorithm 'dispersal'; valid: .*dispersion.*volume"):
        select(*documents(12), algorithm="dispersal")


@pytest.mark.parametrize("name", ["dispersion", "volume"])
@pytest.mark.parametrize("lamb", [0.0, 0.5])
@pytest.mark.parametrize("published", [False, True])
def test_the_policy_gradient_learns_it(name: str, lamb: float, published: bool) -> None:
    features, quality = documents(12, 4, seed=3)
    asked = Select(algorithm=name, lamb=lamb, select_ratio=None, budget_documents=4, solver="policy-gradient")
    values = everything(features, quality, asked)
    how = {"n_epochs": 80, "partial": 1.0, "init": "same", "published": published}
    found = select(features, quality, settings=asked, **how)
    best, mean = float(values.max()), float(values.mean())
    assert found.selected.sum() == 4 and set(found.terms) == {"quality", name}
    assert best - (0.3 if published else 0.15) * (best - mean) <= found.objective <= best + 1e-9


@pytest.mark.slow
def test_the_policy_gradient_learns_two_at_once_by_batches() -> None:
    features, quality = documents(120, seed=1)
    asked = {"algorithm": {"dispersion": 1.0, "volume": 1.0, "Pair_simi": 1.0}, "n_epochs": 200, "n_rollout": 32}
    found = select(features, quality, solver="policy-gradient", partial=0.3, **asked)
    random = select(features, quality, solver="random", **asked)
    assert set(found.terms) == {"quality", "dispersion", "volume", "pairwise"}
    assert found.objective > random.objective + 0.3


def test_the_relaxation_refuses_a_black_box() -> None:
    features, quality = documents(30)
    for algorithm in ("dispersion", {"dispersion": 1.0, "volume": 1.0}, {"dispersion": 1.0, "Pair_simi": 1.0}):
        with pytest.raises(
            ConfigError,
            match="relaxation cannot hold metric dispersion .it has no relaxed or solve_relaxed.; these can: policy",
        ):
            select(features, quality, algorithm=algorithm)
    with pytest.raises(ConfigError, match="greedy cannot hold metric dispersion .it has no incremental."):
        select(features, quality, algorithm="dispersion", solver="greedy")
    for solver in ("direct", "top-quality", "random"):
        assert select(features, quality, algorithm="dispersion", solver=solver).selected.sum() == 3


@pytest.mark.parametrize("lamb", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("seed", range(4))
def test_the_bound_of_a_relaxed_metric_is_a_bound(lamb: float, seed: int) -> None:
    features, quality = documents(12, seed=seed)
    if seed == 3:  # adversarial: pairs of equal documents, one of the pair far better
        features[6:], quality[6:] = features[:6], 10 * quality[:6]
    asked = Select(algorithm="volume", lamb=lamb, select_ratio=None, budget_documents=4)
    best = float(everything(features, quality, asked).max())
    found = select(features, quality, settings=asked)
    assert found.upper_bound is not None
    assert best <= found.upper_bound + 1e-7
    assert best - 0.1 * (1 + abs(best)) <= found.objective <= best + 1e-9


@pytest.mark.parametrize("other", ["Pair_simi", "DiSF"])
@pytest.mark.parametrize("seed", range(3))
def test_a_relaxed_metric_beside_one_of_ours(other: str, seed: int) -> None:
    features, quality = documents(12, seed=seed)
    columns = np.stack([quality, -quality[::-1]], axis=1)
    asked = Select(algorithm={"volume": 1.0, other: 2.0}, select_ratio=None, budget_documents=4)
    best = float(everything(features, columns, asked).max())
    found = select(features, columns, settings=asked)
    assert found.upper_bound is not None and len(found.terms) == 4
    assert best <= found.upper_bound + 1e-7
    assert best - 0.1 * (1 + abs(best)) <= found.objective <= best + 1e-9


def test_the_relaxation_holds_limits_with_it() -> None:
    features, quality = documents(200, seed=2)
    tokens = np.random.default_rng(0).integers(10, 100, 200)
    groups = {"domain": np.where(np.arange(200) % 4 == 0, "news", "web")}
    found = select(
        features, quality, groups=groups, quotas=[{"column": "domain", "minimum": {"news": 0.6}}], algorithm="volume",
        budget_documents=20,
    )  # fmt: skip
    assert found.selected.sum() == 20 and (groups["domain"][found.selected] == "news").sum() >= 12
    assert found.upper_bound is not None and found.objective <= found.upper_bound + 1e-7
    found = select(features, quality, tokens=tokens, algorithm="volume", budget_tokens=1000)
    assert 1000 - tokens.max() < tokens[found.selected].sum() <= 1000


@pytest.mark.parametrize(("name", "says"), [("empty", "no method value"), ("absent", "cannot be loaded")])
def test_what_is_no_metric_is_named(name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=f"metric '{name}' .user_metrics:.*{says}"):
        select(*documents(12), algorithm=name, budget_documents=3)


@pytest.mark.parametrize(("groups", "have"), [({}, "none"), ({"dommain": ["a"] * 12}, "dommain")])
def test_a_column_that_the_pool_lacks_is_named(groups: dict[str, list[str]], have: str) -> None:
    features, quality = documents(12)
    with pytest.raises(ConfigError, match=f"'domains' reads column 'domain', which .*given as groups: {have}"):
        select(features, quality, groups=groups, algorithm="domains", solver="policy-gradient", budget_documents=3)


def test_the_command_reads_a_metrics_column(tmp_path: Path) -> None:
    features, quality = documents(60)
    columns = {"chunk_id": np.arange(60), "quality_score": quality, "feature_arr": list(features)}
    pq.write_table(pa.table({**columns, "domain": ["a", *["b"] * 9] * 6}), tmp_path / "in.parquet")
    settings = resolve(Select(algorithm="domains", solver="direct", select_ratio=0.1))
    _, pool = read_pool(str(tmp_path / "in.parquet"), settings)
    assert list(pool.groups) == ["domain"] and list(pool.groups["domain"][:3]) == ["a", "b", "b"]
    assert select(pool.features, pool.quality, groups=pool.groups, settings=settings).selected.sum() == 6


@pytest.mark.slow
def test_the_command_finds_it(installed: Path, tmp_path: Path) -> None:
    features, quality = documents(60)
    columns = {"chunk_id": np.arange(60), "quality_score": quality, "feature_arr": list(features)}
    pq.write_table(pa.table(columns), tmp_path / "in.parquet")
    root = Path(extensions.__file__).parents[1]
    command = [sys.executable, "-m", "datamask.cli", "select", "--algorithm", "volume", "--keep-duplicates", "--quiet"]
    places = ["--input", str(tmp_path / "in.parquet"), "--output", str(tmp_path / "out.parquet")]
    path = os.pathsep.join([str(root), str(installed)])
    done = subprocess.run([*command, *places], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    assert "volume" in done.stdout and "can score more than" in done.stdout
    assert sum(pq.read_table(tmp_path / "out.parquet")["selected"].to_pylist()) == 6
