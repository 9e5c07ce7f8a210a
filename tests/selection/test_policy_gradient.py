"""The policy gradient: rewards against plain code, the optimum of small pools by exhaustion, the method's settings."""

from itertools import combinations

import numpy as np
import pytest
import torch

from datamask.config import Select
from datamask.errors import ConfigError, DatamaskError
from datamask.selection.arrays import select
from datamask.selection.calibration import make_problem
from datamask.selection.metrics.moments import DiSF, Pairwise
from datamask.selection.paper import policy_gradient, rewards
from datamask.selection.paper.facility import FacilityLocation
from datamask.selection.paper.policy_gradient import as_masks, draw_orders
from datamask.selection.problem.pool import Pool
from datamask.selection.solvers import SOLVERS


def documents(n, d=8, seed=0):
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(5, d))
    features = centres[generator.integers(5, size=n)] + 0.7 * generator.normal(size=(n, d))
    return features, generator.random(n)


def pool_of(n, d=8, seed=0):
    return Pool(*documents(n, d, seed))


def random_masks(n, k, count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return as_masks(draw_orders(torch.zeros(n), k, count, generator), n)


@pytest.mark.parametrize("metric_class", [Pairwise, DiSF, FacilityLocation])
def test_reward_within_the_pool_is_the_change_of_the_metric(metric_class):
    pool = pool_of(60)
    metric = metric_class(pool, torch.ones(60, dtype=torch.float64), 20.0)
    generator = torch.Generator().manual_seed(0)
    reward = rewards.reward_of(None, metric, generator)
    if isinstance(reward, rewards.MomentReward):
        reward = rewards.MomentReward(metric, generator, torch.float32)
    selected = random_masks(60, 20, 1, seed=5)[0]
    reward.start(selected.clone())
    batch = torch.randperm(60, generator=generator)[:25]
    k = int(selected[batch].sum())
    masks = random_masks(25, k, 12, seed=2)
    found, price = reward.within(batch, masks, selected[batch])
    whole = selected.repeat(12, 1)
    whole[:, batch] = masks
    plain = metric.value(whole.bool())
    torch.testing.assert_close(found.double() - found.double().mean(), plain - plain.mean(), rtol=1e-3, atol=1e-5)
    if price is not None:
        flips = (selected[batch] - torch.eye(25)).abs()  # at a selection, the price is what each document alone changes
        moved, _ = reward.within(batch, flips, selected[batch])
        torch.testing.assert_close(moved, price * (1 - 2 * selected[batch]), rtol=1e-3, atol=1e-7)
    reward.move(batch, masks[0])
    again, _ = reward.within(batch, masks, masks[0])
    torch.testing.assert_close(again.double() - again.double().mean(), plain - plain.mean(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("metric_class", [Pairwise, DiSF])
@pytest.mark.parametrize("n", [40, 120])
def test_reward_alone_is_the_metric_of_the_batch(metric_class, n, monkeypatch):
    """Through the Gram matrix, and through the sketch (the larger batch), which is right on average."""
    monkeypatch.setattr(rewards, "SKETCH", 50)
    pool = pool_of(n)
    metric = metric_class(pool, torch.ones(n, dtype=torch.float64), 10.0)
    masks = random_masks(n, 10, 8)
    reward = rewards.MomentReward(metric, torch.Generator().manual_seed(0), torch.float32)
    sketched = n > 100 and metric_class is DiSF
    draws = [reward.alone(torch.arange(n), masks) for _ in range(400 if sketched else 1)]
    found = torch.stack(draws).double().mean(0)
    torch.testing.assert_close(found, metric.value(masks.bool()), rtol=0.1 if sketched else 1e-4, atol=1e-6)


@pytest.mark.parametrize("metric_class", [Pairwise, DiSF])
def test_bf16_rewards_rank_as_float32(metric_class):
    pool = pool_of(400, 64)
    metric = metric_class(pool, torch.ones(400, dtype=torch.float64), 40.0)
    masks = random_masks(400, 40, 64)
    generator = torch.Generator().manual_seed(0)
    low, high = (
        rewards.MomentReward(metric, generator, dtype).alone(torch.arange(400), masks)
        for dtype in (torch.bfloat16, torch.float32)
    )
    assert float(torch.corrcoef(torch.stack([low, high]))[0, 1]) > 0.999


@pytest.mark.parametrize(("points", "n", "k"), [(30, 30, 3), (200, 150, 2), (50, 90, 40)])
@pytest.mark.parametrize("floor", [False, True])
def test_nearest_selected_is_the_maximum(points, n, k, floor):
    generator = torch.Generator().manual_seed(0)
    similarity = torch.randn(points, n, generator=generator)
    masks = random_masks(n, k, 9)
    least = torch.randn(points, generator=generator) if floor else None
    plain = torch.where(masks.bool()[:, None], similarity, -torch.inf).amax(2)
    plain = plain if least is None else torch.maximum(plain, least)
    torch.testing.assert_close(rewards.nearest_selected(similarity, masks, least), plain)


def best_of_all(features, quality, settings):
    problem = make_problem(Pool(features, quality), settings)
    sets = list(combinations(range(len(quality)), int(problem.size)))
    masks = torch.zeros(len(sets), len(quality), dtype=torch.bool)
    masks[torch.arange(len(sets))[:, None], torch.tensor(sets)] = True
    return problem.objective.values(masks)


@pytest.mark.parametrize("algorithm", ["Pair_simi", "DiSF", "Facility"])
@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("gradient", ["surrogate", "order"])
def test_small_pools_are_solved(algorithm, published, gradient):
    """Within a step of rounding of the best of all subsets, and above the mean.

    The paper's own gradient is of a surrogate: with a dozen documents where one seed ends is chance, and differs from
    one processor to another, so that five seeds are tried and the best of them counts.
    """
    features, quality = documents(12, 4, seed=3)
    chance = published and gradient == "surrogate"
    short = []  # of the best, as a share of what the best is above the mean
    for seed in range(5 if chance else 1):
        asked = {"algorithm": algorithm, "select_ratio": None, "budget_documents": 4, "solver": "policy-gradient"}
        settings = Select(**asked, seed=seed)
        everything = best_of_all(features, quality, settings)
        best, mean = float(everything.max()), float(everything.mean())
        chosen = select(
            features, quality, settings=settings, published=published, gradient=gradient, partial=1.0, n_epochs=150
        )
        assert chosen.selected.sum() == 4
        assert mean < chosen.objective <= best + 1e-9
        short.append((best - chosen.objective) / (best - mean))
    assert min(short) < 0.1


def test_a_black_box_is_learned(monkeypatch):
    features, quality = documents(60, 8)
    known = select(features, quality, algorithm="Pair_simi", solver="relaxation")
    monkeypatch.setattr(rewards, "Pairwise", DiSF)  # no fast path: value() alone is called
    blind = select(
        features, quality, algorithm="Pair_simi", solver="policy-gradient", n_epochs=250, partial=0.3, n_rollout=32
    )
    assert blind.objective > 0.94 * known.objective


def test_improved_beats_published_and_comes_near_the_bound():
    features, quality = documents(600, 16, seed=1)
    same = {"algorithm": "DiSF", "solver": "policy-gradient", "n_epochs": 300, "n_rollout": 64, "partial": 0.3}
    improved, published = select(features, quality, **same), select(features, quality, published=True, **same)
    bound = select(features, quality, algorithm="DiSF", solver="relaxation").upper_bound
    assert published.objective < improved.objective
    assert improved.objective > 0.98 * bound


@pytest.mark.parametrize("algorithm", ["Pair_simi", "DiSF"])
def test_settling_leaves_no_exchange_that_gains(algorithm):
    """The last half of the steps: hardly any exchange of two documents is left that raises the objective."""
    features, quality = documents(100, 8, seed=2)
    asked = Select(algorithm=algorithm, select_ratio=0.1, solver="policy-gradient", n_epochs=400, partial=0.5)
    found = select(features, quality, settings=asked)
    problem = make_problem(Pool(features, quality), asked)
    mask = torch.from_numpy(found.selected)
    inside, outside = mask.nonzero()[:, 0], (~mask).nonzero()[:, 0]
    every = mask.repeat(len(inside) * len(outside), 1)
    every[torch.arange(len(every)), inside.repeat_interleave(len(outside))] = False
    every[torch.arange(len(every)), outside.repeat(len(inside))] = True
    assert int((problem.objective.values(every) > found.objective + 1e-6).sum()) <= 3
    assert found.probability[found.selected].mean() > 0.6 and found.probability[~found.selected].mean() < 0.05


def test_same_seed_same_mask():
    features, quality = documents(200)
    runs = [select(features, quality, solver="policy-gradient", n_epochs=30, seed=seed).selected for seed in (1, 1, 2)]
    assert (runs[0] == runs[1]).all()
    assert (runs[0] != runs[2]).any()


def test_pruned_documents_are_never_selected():
    features, quality = documents(200)
    chosen = select(features, quality, solver="policy-gradient", n_epochs=20, prune=0.5, lamb=0.0)
    assert quality[chosen.selected].min() >= np.sort(quality)[100]
    with pytest.raises(DatamaskError, match="prune = 0.95 leaves 10 documents for a budget of 20"):
        select(features, quality, solver="policy-gradient", n_epochs=20, prune=0.95)


@pytest.mark.parametrize("solver", [name for name in SOLVERS if name != "policy-gradient"])
def test_other_solvers_refuse_to_prune(solver):
    features, quality = documents(40)
    with pytest.raises(ConfigError, match=f"{solver} cannot hold prune; these can: policy-gradient"):
        select(features, quality, solver=solver, prune=0.4)
    with pytest.raises(ConfigError, match="cannot hold quotas and prune; these can: none"):
        quotas = [{"column": "g", "as_pool": 0}]
        select(features, quality, groups={"g": ["a"] * 40}, quotas=quotas, solver="greedy", prune=0.4)


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("init", ["same", "quality"])
def test_blocks_share_the_budget(published, init):
    features, quality = documents(203)
    same = {"solver": "policy-gradient", "n_epochs": 20, "published": published, "init": init}
    chosen = select(features, quality, block_documents=50, prune=0.1, **same)
    assert chosen.selected.sum() == 20
    assert quality[chosen.selected].min() >= np.sort(quality)[20]
    steps = [record["step"] for record in chosen.history]
    assert steps == sorted(set(steps)) and steps[-1] == 4 * 20  # 183 documents: four blocks


def test_blocks_are_random_and_cover_the_pool():
    generator = torch.Generator().manual_seed(0)
    blocks = policy_gradient._blocks(torch.arange(2_500_000), 1_000_000, 30_001, generator)
    assert [len(block) for block, _ in blocks] == [833_334, 833_333, 833_333]
    assert sum(k for _, k in blocks) == 30_001 and all(abs(k - 10_000) <= 1 for _, k in blocks)
    assert torch.equal(torch.cat([block for block, _ in blocks]).sort().values, torch.arange(2_500_000))
    for block, _ in blocks:  # of any stretch of the pool, each has its share
        assert abs(int((block < 100_000).sum()) - 33_333) < 1000
    (whole,) = policy_gradient._blocks(torch.arange(1_000_000), 1_000_000, 10, generator)
    assert torch.equal(whole[0], torch.arange(1_000_000))


@pytest.mark.parametrize("algorithm", ["Pair_simi", "DiSF", "Facility"])
def test_a_block_is_rewarded_with_the_other_blocks_as_context(algorithm):
    """The first block is all of one kind, the second of two: on its own it would take both kinds alike."""
    generator = np.random.default_rng(0)
    kind = np.concatenate([np.ones(60), np.tile([1.0, -1.0], 30)])
    features = 0.3 * generator.normal(size=(120, 6))
    if algorithm == "DiSF":  # the kind is the sign of the two columns' product
        features = features[:, :3]
        features[:, 0] = generator.choice([-1, 1], 120)
        features[:, 1] = features[:, 0] * kind
    else:
        features[:, 0] += 2 * kind
    asked = Select(
        algorithm=algorithm, lamb=0.0, select_ratio=0.2, n_epochs=150, partial=0.5, n_rollout=64, init="same"
    )
    problem = make_problem(Pool(features, np.zeros(120)), asked)
    policy = policy_gradient.Policy(problem, torch.Generator().manual_seed(0), lambda record: None, torch.zeros(120))
    for number, block in enumerate(torch.arange(120).split(60)):
        policy.learn(block, 12, number)
    taken = kind[policy.selected.numpy()]
    assert len(taken) == 24
    assert (taken < 0).sum() >= 9


@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 1), (5, 5), (3, 2)])
@pytest.mark.parametrize("published", [False, True])
def test_tiny_pools(n, k, published):
    features, quality = documents(n)
    for algorithm in ("Pair_simi", "DiSF", "Facility"):
        chosen = select(
            features, quality, solver="policy-gradient", n_epochs=5, budget_documents=k, algorithm=algorithm,
            published=published,
        )  # fmt: skip
        assert chosen.selected.sum() == k


@pytest.mark.parametrize("published", [False, True])
def test_constant_quality_and_equal_documents(published):
    chosen = select(
        np.ones((30, 4)), np.ones(30), solver="policy-gradient", n_epochs=5, select_ratio=0.3, published=published
    )
    assert chosen.selected.sum() == 9
    assert np.isfinite(chosen.probability).all()


def test_history_ends_with_the_objective_of_the_result():
    features, quality = documents(100)
    chosen = select(features, quality, solver="policy-gradient", n_epochs=40)
    assert chosen.history[-1]["objective"] == pytest.approx(chosen.objective)
    assert chosen.history[-1]["step"] == 40


def test_a_tenth_of_few_documents_is_batch_enough() -> None:
    """Learned from 4 of 40 documents at a time, prices are noise."""
    for seed in range(2):
        generator = np.random.default_rng(seed)
        features, quality = generator.standard_normal((40, 8)), generator.random(40)
        asked = {"select_ratio": 0.2, "algorithm": "facility"}
        learned, best, plain = (
            select(features, quality, **asked, **how).objective
            for how in (
                {"solver": "policy-gradient", "n_epochs": 200, "n_rollout": 32},
                {},
                {"solver": "top-quality"},
            )
        )
        assert learned > best - 0.3 * (best - plain)
