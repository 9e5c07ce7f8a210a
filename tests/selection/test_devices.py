"""Every solver, metric, scope and budget on another device: what they compute with, they have moved there, and back.

Without a GPU on a fake one, which refuses to mix devices (`fake_device`); with one (`make test-gpu`) on that too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np
import pytest
import torch

from datamask.config import Config, Select
from datamask.encoders.clusters import spherical_kmeans
from datamask.errors import ConfigError
from datamask.selection import moment_rounds
from datamask.selection.arrays import solve_problem
from datamask.selection.calibration import make_problem
from datamask.selection.problem.pool import Pool, max_earlier_similarity, repeats_kept
from datamask.selection.solvers import SOLVERS

from .fake_device import FAR, Mixed, fake_device
from .test_moment_rounds import Rows

COUNT, WIDTH = 48, 6
GENERATOR = np.random.default_rng(0)
FEATURES = GENERATOR.standard_normal((COUNT, WIDTH)).astype(np.float32)
QUALITY = GENERATOR.random(COUNT)
TOKENS = np.round(10 ** GENERATOR.uniform(1, 3, COUNT))
GROUPS = {"domain": GENERATOR.choice(list("abc"), COUNT)}
METRICS = ["Pair_simi", "DiSF", "Facility", {"Pair_simi": 0.5, "DiSF": 0.5}, {"DiSF": 0.5, "Facility": 0.5}]
BUDGETS = {
    "documents": {"budget_documents": 12},
    "tokens": {"select_ratio": None, "budget_tokens": 2000},
    "quotas": {"budget_documents": 12, "quotas": [{"column": "domain", "as_pool": 0.05}]},
    "length": {"budget_documents": 12, "length_tolerance": 0.2},
}


@contextmanager
def picked(device: torch.device) -> Iterator[None]:
    """As if the settings' device were this one, in all that the groups' driver runs."""
    with mock.patch.object(moment_rounds, "pick_device", lambda name: device):
        yield


@contextmanager
def fake() -> Iterator[torch.device]:
    with fake_device() as device, picked(device):
        yield device


@contextmanager
def gpu() -> Iterator[torch.device]:
    device = torch.device("cuda")
    with picked(device):
        yield device


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is here")
PLACES = [fake, pytest.param(gpu, marks=[needs_gpu, pytest.mark.gpu])]


def settings(**asked: object) -> Select:
    return Select(**{"n_epochs": 3, "n_rollout": 6, "partial": 0.5, "calibrate": False, "select_ratio": 0.1, **asked})


def test_the_fake_device_refuses_what_cuda_refuses():
    with fake_device() as device:
        far, near = torch.ones(3, device=device), torch.arange(3)
        assert far.device == FAR and (far + 1).device == FAR and (far + 1).cpu().tolist() == [2, 2, 2]
        assert float(far.sum()) == 3 and far[near].device == FAR
        for wrong in (
            lambda: far + torch.ones(3),
            lambda: torch.ones(3)[far.long()],
            lambda: far.numpy(),
            lambda: np.asarray(far),
            lambda: far.index_select(0, near),
            lambda: torch.rand(3, generator=torch.Generator(device)),
            lambda: torch.rand(3, generator=torch.Generator(), device=device),
        ):
            with pytest.raises(Mixed):
                wrong()


SECONDS = [("Facility", "quotas"), ("Facility", "length")]
CASES = [
    pytest.param(metric, budget, marks=[pytest.mark.slow] * ((metric, budget) in SECONDS))
    for metric in METRICS
    for budget in BUDGETS
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("algorithm", "budget"), CASES, ids=str)
@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver(solver, algorithm, budget, place):
    asked = settings(solver=solver, algorithm=algorithm, **BUDGETS[budget])
    with place() as device:
        problem = make_problem(Pool(FEATURES, QUALITY, TOKENS, GROUPS, device=device), asked)
        try:
            found = solve_problem(problem)
        except ConfigError as refused:  # a solver that cannot hold the limit, or has no form of the metric
            assert "cannot hold" in str(refused)
            return
    assert not problem.limits.violations(found.selected)
    assert np.isfinite(found.objective)


def test_another_device_gives_the_same_selection():
    for algorithm in ("Pair_simi", "DiSF", "Facility"):
        asked = settings(algorithm=algorithm, budget_documents=12)
        here = solve_problem(make_problem(Pool(FEATURES, QUALITY), asked))
        with fake() as device:
            there = solve_problem(make_problem(Pool(FEATURES, QUALITY, device=device), asked))
        assert np.array_equal(here.selected, there.selected) and here.upper_bound == there.upper_bound


EXCHANGED = [("Pair_simi", budget) for budget in BUDGETS] + [("DiSF", "tokens")]
REST = [pytest.param("DiSF", budget, marks=pytest.mark.slow) for budget in BUDGETS if budget != "tokens"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("algorithm", "budget"), [*EXCHANGED, *REST])
def test_the_exchange_of_sums(algorithm, budget, place, monkeypatch, tmp_path):
    monkeypatch.setattr(moment_rounds, "SAMPLE", 20)
    parts = np.array_split(np.arange(COUNT), 3)
    shards = [Rows(FEATURES[p], QUALITY[p], TOKENS[p], {"domain": GROUPS["domain"][p]}) for p in parts]
    with place():
        config = Config(select=settings(algorithm=algorithm, **BUDGETS[budget]))
        found = moment_rounds.MomentRounds(shards, config, str(tmp_path)).run()
    assert sum(each.read("selected")[0].sum() for each in found.decided) == found.facts["selected"]
    assert found.facts["upper_bound"] >= found.facts["objective"]


@pytest.mark.parametrize("place", PLACES)
def test_near_duplicates(place):
    rows = torch.nn.functional.normalize(torch.from_numpy(FEATURES), dim=1)
    with place() as device:
        far = rows.to(device)
        repeats = repeats_kept(far, 0.9)
        assert max_earlier_similarity(far).device.type == repeats.device.type == "cpu"
        assert spherical_kmeans(far, 5, torch.Generator().manual_seed(0)).device.type == far.device.type
