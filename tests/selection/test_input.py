"""Bad input: one clear message, or the right answer."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from datamask import select
from datamask.errors import ConfigError, InputError


@pytest.fixture
def features() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((40, 6)).astype(np.float32)


@pytest.fixture
def quality() -> np.ndarray:
    return np.random.default_rng(1).random(40)


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
@pytest.mark.parametrize("algorithm", ["DiSF", "Pair_simi", "Facility"])
def test_rows_without_direction_are_named(features, quality, value, algorithm):
    features[[3, 7]] = value
    with pytest.raises(InputError, match=r"2 rows \(3, 7\) are not finite or all zero"):
        select(features, quality, algorithm=algorithm)


def test_quality_must_be_numbers(features, quality):
    quality[5] = np.nan
    with pytest.raises(InputError, match="quality of row 5"):
        select(features, quality)
    with pytest.raises(InputError, match="a value for each of the 40"):
        select(features, quality[:30])
    with pytest.raises(InputError, match="must be numbers"):
        select(features, ["good"] * 40)


@pytest.mark.parametrize("algorithm", ["DiSF", "Pair_simi"])
@pytest.mark.parametrize("solver", ["relaxation", "top-quality", "random", "direct"])
def test_constant_quality_and_equal_documents(features, quality, algorithm, solver):
    flat = select(features, np.full(40, 0.3), algorithm=algorithm, solver=solver, select_ratio=0.5)
    assert flat.selected.sum() == 20 and flat.terms["quality"] == 0 and np.isfinite(flat.objective)
    same = select(np.tile(features[:1], (40, 1)), quality, algorithm=algorithm, solver=solver, select_ratio=0.25)
    assert same.selected.sum() == 10 and np.isfinite(same.objective)
    if solver == "relaxation":  # only quality is left to decide
        assert set(same.indices) == set(np.argsort(-quality)[:10])


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.int8])
def test_tensors_of_types_that_numpy_lacks_or_that_learn(features, quality, kind):
    rows = (10 * torch.from_numpy(features)).to(kind)
    expected = select(rows.float().numpy(), quality).selected
    assert (select(rows, torch.from_numpy(quality)).selected == expected).all()
    learnt = rows.float().requires_grad_()
    assert (select(learnt, torch.from_numpy(quality).requires_grad_()).selected == expected).all()


def test_columns_of_lists_and_data_frames_are_taken(features, quality):
    quota = {"column": "domain", "maximum": {"0": 0.5}}
    groups = {"domain": (np.arange(40) % 3).astype(str)}
    expected = select(features, quality, groups=groups, quotas=[quota]).selected
    column = pd.Series(list(features), index=range(7, 47))
    assert (select(column, quality, groups=pd.DataFrame(groups), quotas=[quota]).selected == expected).all()
    with pytest.raises(InputError, match="features must be one .* array: all input arrays must have the same shape"):
        select(pd.Series([[1.0], *features]), [0, *quality])
    with pytest.raises(InputError, match="groups must be a mapping, column name -> values, found ndarray"):
        select(features, quality, groups=groups["domain"], quotas=[quota])
    with pytest.raises(ConfigError, match="maximum.0 = 50: Input should be less than or equal to 1"):
        select(features, quality, groups=groups, quotas=[quota | {"maximum": {"0": 50}}])


def test_what_is_no_text_is_named(features, quality):
    texts = [f"words of text {number}" for number in range(40)]
    for missing in (None, float("nan")):
        with pytest.raises(InputError, match=rf"texts\[3\] is {missing}, which is no text"):
            select(features, quality, texts=[*texts[:3], missing, *texts[4:]])
    with pytest.raises(InputError, match="target is one text; give a list"):
        select(features, quality, texts=texts, target=" ".join(texts))


def test_a_seed_is_no_less_than_0(features, quality):
    with pytest.raises(ConfigError, match="seed = -1: Input should be greater than or equal to 0"):
        select(features, quality, seed=-1)


@pytest.mark.parametrize("algorithm", ["DiSF", "Pair_simi"])
def test_everything_and_one(features, quality, algorithm):
    everything = select(features, quality, algorithm=algorithm, select_ratio=1)
    assert everything.selected.all() and everything.objective <= everything.upper_bound + 1e-7
    assert select(features[:1], quality[:1], algorithm=algorithm, select_ratio=1).selected.all()
    assert select(features, quality, algorithm=algorithm, budget_documents=1).selected.sum() == 1


def test_budgets_that_cannot_be(features, quality):
    with pytest.raises(InputError, match="not one document"):
        select(features, quality, select_ratio=0.001)
    with pytest.raises(ConfigError, match="budget_documents"):
        select(features, quality, budget_documents=0)
    with pytest.raises(InputError, match="more than the pool's 40 documents"):
        select(features, quality, budget_documents=41)
    with pytest.raises(InputError, match="more than the pool's 400 tokens"):
        select(features, quality, tokens=np.full(40, 10), budget_tokens=401)
    with pytest.raises(InputError, match="less than the shortest"):
        select(features, quality, tokens=np.full(40, 10), budget_tokens=9)
    with pytest.raises(ConfigError, match="pass tokens"):
        select(features, quality, budget_tokens=9)
    with pytest.raises(InputError, match="tokens must be positive"):
        select(features, quality, tokens=np.zeros(40), budget_tokens=9)


def test_quotas_that_cannot_be(features, quality):
    groups = {"domain": ["news"] * 5 + ["web"] * 35}
    ask = lambda **quota: select(features, quality, groups=groups, quotas=[quota], select_ratio=0.5)  # noqa: E731
    with pytest.raises(InputError, match="'news' must have at least 10 of the budget's 20, the pool has 5"):
        ask(column="domain", minimum={"news": 0.5})
    with pytest.raises(InputError, match="leave room for 15"):
        ask(column="domain", maximum={"web": 0.5})
    with pytest.raises(InputError, match='did you mean "news"'):
        ask(column="domain", minimum={"newz": 0.1})
    with pytest.raises(ConfigError, match='did you mean "domain"'):
        ask(column="domian", minimum={"news": 0.1})
    with pytest.warns(UserWarning, match='no document has domain newz.*did you mean "news"'):
        assert ask(column="domain", maximum={"newz": 0.1, "news": 0.1}).selected.sum() == 20


def test_names_that_are_not_known(features, quality):
    with pytest.raises(ConfigError, match="DiSF.*Facility.*Pair_simi"):
        select(features, quality, algorithm="cosine")
    with pytest.raises(ConfigError, match="relaxation"):
        select(features, quality, solver="annealing")
    with pytest.raises(ConfigError, match='unknown setting lambda; did you mean "lamb"'):
        select(features, quality, **{"lambda": 0.5})
    with pytest.raises(ConfigError, match="cannot hold quotas; these can: relaxation"):
        select(
            features, quality, solver="greedy", groups={"g": list("ab") * 20}, quotas=[{"column": "g", "as_pool": 0}]
        )


def test_shapes_that_do_not_fit(features, quality):
    with pytest.raises(InputError, match="one \\(documents, dimensions\\) array"):
        select([[1.0, 2.0], [1.0]], [0.1, 0.2])
    with pytest.raises(InputError, match=r"shape \(documents, dimensions\), found generator"):
        select((row for row in features), quality)
    with pytest.raises(InputError, match="shape"):
        select(features[0], quality)


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is here")
def test_cuda_asked_for_and_absent(features, quality):
    with pytest.raises(ConfigError, match="0 CUDA devices"):
        select(features, quality, device="cuda:0")
    with pytest.raises(ConfigError, match="unknown device"):
        select(features, quality, device="gpu")
    assert select(features, quality, device="auto").selected.sum() == 4


def test_a_selection_is_shown_in_one_line():
    features, quality = np.eye(60, 8, dtype=np.float32) + 0.1, np.linspace(0, 1, 60)
    found = select(features, quality, select_ratio=0.1, algorithm="Pair_simi")
    assert repr(found).startswith("Selection(relaxation: 6 of 60 documents, objective ")
    assert found.upper_bound is not None and f"of at most {found.upper_bound:.4f}" in repr(found)
    assert "of at most" not in repr(select(features, quality, select_ratio=0.1, solver="top-quality"))
