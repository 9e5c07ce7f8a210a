"""Greedy against apricot's published numbers, and against the plain loop."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from datamask.config import Select
from datamask.errors import ConfigError
from datamask.selection.arrays import select
from datamask.selection.calibration import make_problem
from datamask.selection.paper.facility import GraphCoverage
from datamask.selection.problem.limits import Limits
from datamask.selection.problem.pool import Pool
from datamask.selection.solvers.relaxation import rank_incrementally

# apricot-select 0.6.1, tests/test_functions/test_facility_location.py: digits, "cosine" (that is, cosine squared)
RANKING = """424 615 1545 1385 1482 112 1539 1075 331 493 885 345 1282 823 1432 1051 537 1788 1549 1622 834 1634 1718
1474 1185 655 1292 396 1711 1676 2 183 1536 983 438 1276 305 1353 620 384 1026 162 1012 798 213 227 1291 533 1655 1485
410 1206 157 1387 556 29 1588 1320 1295 164 514 938 948 517 579 1325 1682 1222 82 959 943 520 762 1066 898 1227 1568
1086 881 1678 1470 1364 732 937 1168 347 241 573 1156 1570 908 1584 126 1639 815 411 151 846 696 233"""
GAINS = """1126.631 76.1809 43.868 35.4606 33.088 32.6405 27.5345 23.2181 20.0442 15.384 10.8113 9.5884 8.3655 7.7554
7.6675 7.3457 5.2902 5.0039 4.6488 4.2388 4.2165 4.1855 3.7814 3.4738 3.1826 3.1456 3.1258 3.0707 2.9035 2.8744 2.788
2.4376 2.3306 1.9438 1.8711 1.8376 1.7047 1.6453 1.5747 1.5644 1.5371 1.4879 1.4603 1.4256 1.4233 1.4098 1.3889 1.3861
1.3012 1.2986 1.278 1.2779 1.2775 1.2059 1.1914 1.1437 1.1221 1.1031 1.0829 1.0708 1.0427 1.0116 1.0099 0.9978 0.9943
0.98 0.9717 0.945 0.927 0.9064 0.8899 0.8746 0.8651 0.8649 0.859 0.8526 0.84 0.8284 0.8269 0.8067 0.8066 0.7645 0.7517
0.7409 0.7396 0.7383 0.7237 0.7209 0.7043 0.7021 0.6945 0.6806 0.6585 0.6539 0.6198 0.6161 0.6078 0.5963 0.5945
0.5899"""


@pytest.mark.slow
def test_lazy_greedy_gives_apricots_ranking_and_gains():
    digits = load_digits().data
    unit = torch.nn.functional.normalize(torch.from_numpy(digits), dim=1)
    kernel = (unit @ unit.T) ** 2
    similarity, index = kernel.sort(dim=1, descending=True, stable=True)
    graph = GraphCoverage(index, similarity, torch.zeros(len(digits), dtype=torch.float64))
    found = graph.greedy(np.zeros(len(digits)), 1.0, Limits(np.ones(len(digits)), 100.0))[:100]
    assert found.tolist() == [int(number) for number in RANKING.split()]
    covered = torch.stack([kernel[:, found[: picks + 1]].amax(dim=1).sum() for picks in range(100)])
    gains = torch.diff(covered, prepend=torch.zeros(1, dtype=torch.float64))
    assert gains.tolist() == pytest.approx([float(gain) for gain in GAINS.split()], abs=1e-4)


def documents(n, d=6, seed=0):
    generator = np.random.default_rng(seed)
    return generator.normal(size=(n, d)), generator.random(n)


def objective_of(problem, rows, size=None):
    """f of a set whose means are over its own size, written plainly in float64."""
    unit = problem.pool.rows(slice(None), torch.float64)
    size = len(rows)
    mask = torch.zeros(len(problem), dtype=torch.bool)
    mask[rows] = True
    total = float(problem.objective.linear[mask].sum()) / size
    for term in problem.objective.diversity:
        z = term.metric.prepare(unit)[mask]
        moment = z.T @ z if term.name == "disf" else z.sum(0)
        if term.name == "disf":
            moment = moment - torch.diag(moment.diagonal())
        total -= term.scale * term.metric.unit * float(moment.square().sum()) / size**2
    return total


@pytest.mark.parametrize("algorithm", ["Pair_simi", "DiSF", {"Pair_simi": 1.0, "DiSF": 2.0}])
@pytest.mark.parametrize("seed", [0, 1])
def test_incremental_greedy_is_the_plain_loop(algorithm, seed):
    features, quality = documents(40, seed=seed)
    problem = make_problem(Pool(features, quality), Select(algorithm=algorithm, budget_documents=12))
    terms = [term for term in problem.objective.diversity if term.scale]
    found = rank_incrementally(problem, terms, 12, lambda record: None).tolist()
    picked = []
    for _ in range(12):
        rest = [row for row in range(40) if row not in picked]
        picked.append(max(rest, key=lambda row: objective_of(problem, [*picked, row])))
    assert found == picked


@pytest.mark.parametrize("lamb", [0.0, 0.5])
def test_lazy_greedy_is_the_plain_loop(lamb):
    features, quality = documents(50)
    settings = {"algorithm": "Facility", "budget_documents": 8, "lamb": lamb}
    problem = make_problem(Pool(features, quality), Select(**settings))
    (term,) = [term for term in problem.objective.diversity if term.scale]
    found = term.metric.graph.greedy((problem.objective.linear / 8).numpy(), term.scale / 50, problem.limits)[
        :8
    ].tolist()
    unit = problem.pool.rows(slice(None), torch.float64)
    similarity, linear = unit @ unit.T, problem.objective.linear / problem.size

    def value(rows):
        return term.scale * float(similarity[:, rows].amax(1).mean()) + float(linear[rows].sum())

    picked = []
    for _ in range(8):
        rest = [row for row in range(50) if row not in picked]
        picked.append(max(rest, key=lambda row: value([*picked, row])))
    assert found == picked


@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 1), (6, 6), (30, 4)])
@pytest.mark.parametrize(
    ("solver", "algorithm"),
    [("greedy", "Pair_simi"), ("greedy", "DiSF"), ("greedy", "Facility"), ("semdedup", "Pair_simi")],
)
def test_any_size(solver, algorithm, n, k):
    chosen = select(*documents(n), algorithm=algorithm, solver=solver, budget_documents=k)
    assert chosen.selected.sum() == k


@pytest.mark.parametrize("algorithm", ["Pair_simi", "DiSF", "Facility"])
def test_greedy_beats_random(algorithm):
    documents_ = documents(300, seed=4)
    values = {
        solver: select(*documents_, algorithm=algorithm, solver=solver, select_ratio=0.1).objective
        for solver in ("random", "greedy")
    }
    assert values["greedy"] > values["random"] + 0.2


def test_greedy_refuses_what_it_cannot_do():
    features, quality = documents(20)
    with pytest.raises(
        ConfigError, match="greedy cannot hold metrics disf and facility together; these can: policy-gradient"
    ):
        select(features, quality, solver="greedy", algorithm={"DiSF": 1.0, "Facility": 1.0}, select_ratio=0.5)
    with pytest.raises(ConfigError, match="greedy cannot hold a budget in tokens"):
        select(features, quality, tokens=np.ones(20), solver="greedy", budget_tokens=10)


def test_semdedup_keeps_the_least_alike():
    """Twenty distinct documents, each three times: a third of the pool holds no repetition."""
    features = np.repeat(np.linalg.qr(np.random.default_rng(0).normal(size=(20, 20)))[0], 3, axis=0)
    chosen = select(features, np.ones(60), solver="semdedup", budget_documents=20)
    assert sorted(chosen.indices // 3) == list(range(20))
