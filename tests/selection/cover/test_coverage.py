"""Coverage: against definitions written out, finite differences and exhaustive search."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from datamask import select
from datamask.config import resolve
from datamask.errors import ConfigError, InputError
from datamask.selection.arrays import solve_problem
from datamask.selection.calibration import make_problem
from datamask.selection.cover.greedy_search import grow_greedily
from datamask.selection.cover.solve import make_concave
from datamask.selection.cover.tangent import scaling
from datamask.selection.metrics.coverage import SummedCoverage
from datamask.selection.problem.feasible import Feasible, fill_in_order
from datamask.selection.problem.limits import Limits
from datamask.selection.problem.pool import Pool
from datamask.text.ngrams import count_ngrams

N, D, J = 12, 5, 40
ALL = {"embedding": 1.0, "ngrams": 0.7, "target": 0.4}
ALGORITHMS: dict[str, dict] = {
    "embedding": {"algorithm": "coverage"},
    "ngrams": {"algorithm": "coverage", "coverage": {"atoms": {"ngrams": 1}}},
    "target": {"algorithm": "coverage", "coverage": {"atoms": {"target": 1}}},
    "mixture": {"algorithm": "coverage", "coverage": {"atoms": ALL, "anchors": 7}},
    "saturating": {"algorithm": "coverage", "coverage": {"atoms": ALL, "anchors": 7, "curve": "saturating"}},
    "with pairwise": {"algorithm": {"coverage": 1, "Pair_simi": 0.5, "DiSF": 0.2}, "coverage": {"atoms": ALL}},
}


def pool_of(seed: int, count: int = N, adversarial: bool = False) -> Pool:
    generator = np.random.default_rng(seed)
    features = generator.standard_normal((count, D)) + 1.0
    counts = generator.poisson(0.4, (count, J)).astype(np.float32)
    if adversarial:  # copies, an atom that one document holds alone, a document without words
        features[1:4] = features[0]
        counts[:, 0] = 0
        counts[5, 0] = 30
        counts[6] = 0
    return Pool(
        features.astype(np.float32),
        generator.random(count),
        generator.integers(1, 9, count).astype(float),
        {"domain": generator.integers(0, 3, count).astype(str)},
        ngrams=csr_array(counts),
        target=generator.random(J) * (generator.random(J) < 0.5),
    )


def problem_of(pool: Pool, **settings):
    if not {"budget_documents", "budget_tokens"} & set(settings):
        settings["budget_documents"] = 4
    return make_problem(pool, resolve(None, settings, words=False))


def feasible_masks(problem) -> np.ndarray:
    count = len(problem)
    masks = ((np.arange(1 << count)[:, None] >> np.arange(count)) & 1).astype(bool)
    spent = masks @ problem.limits.weights
    one = 0 if problem.unit == "documents" else problem.limits.weights.max()
    masks = masks[(spent <= problem.size + 1e-9) & (spent >= problem.size - one - 1e-9) & (spent > 0)]
    if problem.limits:
        masks = masks[[not problem.limits.violations(mask) for mask in masks]]
    return masks


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("lamb", [0.0, 0.5])
def test_no_selection_is_above_the_bound_and_the_best_is_found(name: str, lamb: float) -> None:
    for seed, adversarial in ((0, False), (1, True)):
        problem = problem_of(pool_of(seed, 10, adversarial), lamb=lamb, **ALGORITHMS[name])
        values = problem.objective.values(torch.from_numpy(feasible_masks(problem))).numpy()
        found = solve_problem(problem)
        assert found.upper_bound >= values.max() - 1e-9
        assert found.objective == pytest.approx(
            float(problem.objective.values(torch.from_numpy(found.selected[None]))[0]), abs=1e-6
        )
        ranks = (values > found.objective + 1e-9).mean()
        assert ranks <= 0.03, f"{ranks:.1%} of all selections are better"


@pytest.mark.parametrize("name", ["embedding", "mixture", "with pairwise"])
@pytest.mark.parametrize(
    "limits",
    [
        {"budget_tokens": 17},
        {"budget_documents": 5, "quotas": [{"column": "domain", "maximum": {"0": 0.4}, "minimum": {"1": 0.2}}]},
        {"budget_tokens": 20, "quotas": [{"column": "domain", "as_pool": 0.2}]},
        {"budget_documents": 5, "length_tolerance": 0.2},
    ],
)
def test_budgets_and_limits_hold_and_the_bound_covers_them(name: str, limits: dict) -> None:
    problem = problem_of(pool_of(3), lamb=0.4, **ALGORITHMS[name], **limits)
    masks = feasible_masks(problem)
    values = problem.objective.values(torch.from_numpy(masks)).numpy()
    found = solve_problem(problem)  # raises where a limit is broken
    assert found.upper_bound >= values.max() - 1e-9
    assert (values > found.objective + 1e-9).mean() <= 0.15


@pytest.mark.parametrize("name", ["embedding", "mixture", "saturating"])
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    problem = problem_of(pool_of(5), lamb=0.3, budget_tokens=20, **ALGORITHMS[name])
    p = torch.from_numpy(np.random.default_rng(0).uniform(0.1, 0.9, N))
    for term in problem.objective.diversity:
        value, gradient = term.metric.relaxed(p)
        for row in range(N):
            ends = []
            for step in (1e-4, -1e-4):
                other = p.clone()
                other[row] += step
                ends.append(term.metric.relaxed(other)[0])
            assert (ends[0] - ends[1]) / 2e-4 == pytest.approx(float(gradient[row]), rel=2e-3, abs=1e-5)
        assert value <= term.metric.relaxed(p)[0] + 1e-12


@pytest.mark.parametrize("name", ["embedding", "ngrams", "mixture", "saturating"])
@pytest.mark.parametrize("budget", [{"budget_documents": 4}, {"budget_tokens": 20}])
def test_steps_are_scaled_by_the_root_of_the_curvature(name: str, budget: dict) -> None:
    """−∂²f/∂p_i² · size² / w_i by finite differences of the prices."""
    problem = problem_of(pool_of(5), lamb=0.3, **budget, **ALGORITHMS[name])
    terms = [term for term in problem.objective.diversity if term.scale]
    concave = make_concave(problem, terms, Feasible(problem.limits))
    p = torch.from_numpy(np.random.default_rng(0).uniform(0.1, 0.9, N))
    found, curved = scaling(concave, p), np.zeros(N)
    for row in range(N):
        ends = []
        for step in (1e-4, -1e-4):
            other = p.clone()
            other[row] += step
            ends.append(float(concave.price(concave.states(other))[row]))
        curved[row] = (ends[1] - ends[0]) / 2e-4 * concave.size
    curved = np.sqrt(np.maximum(curved / np.median(curved), 1e-2))
    assert found is not None
    assert found.numpy() == pytest.approx(curved, rel=1e-3)


@pytest.mark.parametrize("seed", range(8))
def test_no_feasible_point_is_nearer_in_the_scaled_norm(seed: int) -> None:
    generator = np.random.default_rng(seed)
    weights = np.ones(30) if seed % 2 else generator.integers(1, 50, 30).astype(float)
    feasible = Feasible(Limits(weights, float(round(0.4 * weights.sum()))))
    z = torch.from_numpy(generator.standard_normal(30) * 10.0 ** generator.integers(-2, 3))
    scale = torch.from_numpy(10.0 ** generator.uniform(-1, 2, 30))
    p = feasible.project(z, scale)
    assert float(feasible.weights @ p) == pytest.approx(feasible.size, rel=1e-6)
    assert ((p >= 0) & (p <= 1)).all()
    slope = feasible.weights * scale * (p - z)  # of half the squared distance
    for _ in range(50):
        other = feasible.project(torch.from_numpy(generator.standard_normal(30) * 2))
        assert float(slope @ (other - p)) >= -1e-4 * float(slope.abs().max())
    assert torch.allclose(feasible.project(z, torch.ones(30, dtype=torch.float64)), feasible.project(z), atol=1e-7)


def by_quality(quality: np.ndarray) -> np.ndarray:
    """By how much documents count in the words to be covered, as docs/selection.md says it."""
    low, high = min(0.0, np.quantile(quality, 0.05)), np.quantile(quality, 0.95)
    return np.clip((quality - low) / (high - low), 0, 1) if high > low else np.ones(len(quality))


@pytest.mark.parametrize("weighed", ["quality", "equal"])
def test_the_value_is_the_definition(weighed: str) -> None:
    pool = pool_of(7)
    coverage = {"atoms": {"ngrams": 1}, "smoothing": 0.1, "document_weights": weighed}
    settings = {"budget_tokens": 20, "coverage": coverage}
    problem = problem_of(pool, algorithm="coverage", lamb=0.0, calibrate=False, **settings)
    mask = np.random.default_rng(1).random(N) < 0.5
    b = pool.tokens
    rows = pool.ngrams.toarray() / np.maximum(pool.ngrams.sum(axis=1), 1)[:, None]
    counted = b * (by_quality(pool.quality[:, 0]) if weighed == "quality" else 1)
    t = counted @ rows / (counted @ rows).sum()
    mixture = 0.9 * (b * mask) @ rows / 20 + 0.1 * (b / b.sum()) @ rows
    kept = t > 0
    expected = t[kept] @ np.log(mixture[kept]) - t[kept] @ np.log(((b / b.sum()) @ rows)[kept])
    assert float(problem.objective.values(torch.from_numpy(mask[None]))[0]) == pytest.approx(expected, abs=1e-5)


def test_the_kernel_is_the_definition() -> None:
    problem = problem_of(pool_of(8), algorithm="coverage", coverage={"anchors": N})
    metric = problem.objective.diversity[0].metric
    dense = np.zeros((N, N))
    for row in range(N):
        part = slice(metric.rows.start[row], metric.rows.start[row + 1])
        dense[row, metric.rows.index[part]] = metric.rows.value[part]
    x = problem.pool.rows(slice(0, N)).numpy()
    order = [int(np.abs(x - anchor).sum(axis=1).argmin()) for anchor in metric.atoms.anchors]
    expected = np.exp((x @ x[order].T - 1) / 0.1)
    assert np.allclose(dense, expected, atol=1e-5)


def test_the_whole_pool_covers_its_words_entirely() -> None:
    pool = pool_of(9)
    problem = problem_of(pool, algorithm="coverage", coverage={"atoms": {"ngrams": 1}}, budget_documents=N, lamb=0.0)
    metric = problem.objective.diversity[0].metric
    assert float(metric.value(torch.ones(1, N, dtype=torch.bool))[0]) == pytest.approx(0, abs=1e-6)


def test_the_mask_is_above_rounding_and_growing() -> None:
    from datamask.selection.cover import greedy_search as search
    from datamask.selection.cover import solve as cover
    from datamask.selection.metrics.coverage import SummedCoverage
    from datamask.selection.problem.feasible import Feasible, fill_in_order

    pool = pool_of(11, 300)
    for settings in ({"budget_documents": 30}, {"budget_tokens": 150}):
        problem = problem_of(pool, algorithm="coverage", coverage={"atoms": {"ngrams": 1}}, lamb=0.3, **settings)
        found = solve_problem(problem)
        feasible = Feasible(problem.limits)
        p = torch.from_numpy(found.probability).double()
        rounded = feasible.round(p, torch.from_numpy(found.price).double())
        term = problem.objective.diversity[0]
        joint = SummedCoverage.of([term.metric], [term.scale])
        worth = problem.objective.linear.numpy() * problem.limits.weights / problem.size
        grown = torch.from_numpy(fill_in_order(problem.limits, search.grow_greedily(joint, worth, problem.limits)))
        others = problem.objective.values(torch.stack([rounded, grown])).numpy()
        assert (found.objective > others).all()
        assert found.history[-1]["upper_bound"] - found.history[-1]["relaxed"] <= 1e-3
        assert cover.ACCURACY <= 1e-3


def test_same_mask_whatever_the_threads_and_the_order() -> None:
    pool = pool_of(13, 120)
    found = []
    for threads in (1, 2):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        found.append(solve_problem(problem_of(pool, lamb=0.4, budget_documents=12, **ALGORITHMS["mixture"])).selected)
        torch.set_num_threads(before)
    assert (found[0] == found[1]).all()


WORDS = "river stone light winter garden music engine paper silver morning".split()


def texts_of(seed: int, count: int, words: list[str] = WORDS) -> list[str]:
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(words, 30)) for _ in range(count)]


def test_a_target_draws_the_choice_to_its_words() -> None:
    generator = np.random.default_rng(0)
    texts = texts_of(1, 40, WORDS[:5]) + texts_of(2, 40, WORDS[5:])
    target = texts_of(3, 20, WORDS[5:])
    found = select(
        generator.standard_normal((80, D)), generator.random(80), texts=texts, target=target, budget_documents=10,
        algorithm="coverage", coverage={"atoms": {"target": 1}}, lamb=0.0,
    )  # fmt: skip
    assert found.selected[40:].sum() >= 9


def test_a_leaked_target_is_named_and_left_out_unless_asked_for() -> None:
    generator = np.random.default_rng(0)
    texts, target = texts_of(1, 30), texts_of(2, 5)
    texts[7] = "before " + target[3] + " after"
    texts[9] = " ".join(target[1].split()[:12])  # twelve words in a row are no leak
    features, quality = generator.standard_normal((30, D)), np.where(np.arange(30) == 7, 1.0, generator.random(30) / 2)
    arguments = {"texts": texts, "target": target, "budget_documents": 5, "algorithm": "coverage", "lamb": 0.9}
    with pytest.warns(UserWarning, match=r"1 documents hold .* \(rows 7\)"):
        found = select(features, quality, **arguments)
    assert not found.selected[7] and found.selected.sum() == 5 and len(found.selected) == 30
    assert select(features, quality, coverage={"leaks": True}, **arguments).selected[7]


def test_targets_that_say_nothing_are_refused_in_words() -> None:
    features, quality, texts = np.random.default_rng(0).standard_normal((30, D)), np.zeros(30), texts_of(1, 30)
    arguments = {"texts": texts, "budget_documents": 5, "algorithm": "coverage"}
    with pytest.raises(InputError, match="no words"):
        select(features, quality, target=["", "  "], **arguments)
    with pytest.raises(InputError, match="7 words"):
        select(features, quality, target=["just these few words are not enough"], **arguments)
    foreign = ["съешь ещё этих мягких французских булок да выпей же чаю " * 3]
    with pytest.raises(InputError, match="0% of the target's words"):
        select(features, quality, target=foreign, **arguments)
    assert select(features, quality, target=texts_of(5, 2), **arguments).selected.sum() == 5  # 60 words
    with pytest.raises(ConfigError, match="needs the documents' texts"):
        select(features, quality, algorithm="coverage", coverage={"atoms": {"ngrams": 1}}, budget_documents=5)
    with pytest.raises(InputError, match="each needs one"):
        select(features, quality, texts=texts[:5], algorithm="coverage", budget_documents=5)


def test_settings() -> None:
    assert resolve(None, {"coverage": {"atoms": {"ngrams": 1}}}).metrics == {"coverage-ngrams": 1.0}
    assert resolve(None, {"coverage": {"atoms": {}}}) == resolve()
    mixed = {"algorithm": {"coverage": 2, "DiSF": 1}, "coverage": {"atoms": {"ngrams": 3, "embedding": 1}}}
    assert resolve(None, mixed).metrics == {"coverage-ngrams": 1.5, "coverage-embedding": 0.5, "disf": 1}


def test_other_solvers_take_coverage() -> None:
    pool = pool_of(17, 40)
    best = solve_problem(problem_of(pool, lamb=0.2, **ALGORITHMS["mixture"])).objective
    learned = {"n_epochs": 60, "n_rollout": 32, "partial": 0.5}
    for solver, extra in (("policy-gradient", learned), ("direct", {}), ("greedy", {})):
        found = solve_problem(problem_of(pool, lamb=0.2, solver=solver, **ALGORITHMS["mixture"], **extra))
        assert found.selected.sum() == 4 and found.objective <= best + 1e-9
        assert found.objective > 0.3 * best or solver == "direct"
    published = {"solver": "policy-gradient", "published": True, "n_epochs": 5, "n_rollout": 8}
    assert solve_problem(problem_of(pool, lamb=0.2, **ALGORITHMS["mixture"], **published)).selected.sum() == 4
    assert count_ngrams(["a b"]).sum() == 3


def test_the_best_of_coverage_alone_is_no_less_than_greedys_where_lengths_differ():
    """What scores 1. Rounding the fractional optimum alone ends far below greedy here."""
    generator, count = np.random.default_rng(0), 3_000
    lengths = np.maximum(generator.lognormal(4.2, 1.8, count), 8).astype(int)
    topics = generator.dirichlet(np.full(2048, 0.02), 30)
    words = [generator.multinomial(length, topics[generator.integers(30)]).astype(np.float32) for length in lengths]
    pool = Pool(
        np.ones((count, 1), np.float32),
        generator.random(count),
        tokens=lengths.astype(float),
        ngrams=csr_array(np.stack(words)),
    )
    asked = {"algorithm": "coverage", "coverage": {"atoms": {"ngrams": 1.0}}, "budget_tokens": int(lengths.sum() // 10)}
    problem = make_problem(pool, resolve(None, asked))
    term = problem.objective.diversity[0]
    joint = SummedCoverage.of([term.metric], [1.0])
    ranking = grow_greedily(joint, np.zeros(count), problem.limits)
    greedy = fill_in_order(problem.limits, ranking) * problem.limits.weights / problem.size
    assert term.one >= joint.of_state(joint.state(greedy))
