"""The ablation, small; what the coder says of its arms."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from datamask.config import load_config
from datamask.errors import ConfigError
from datamask.stages import record
from datamask.study import Item, Target
from datamask.study import ablation as page
from datamask.study.ablation import METRICS, Ablation, Arm, SelectionJudge, ablate, choose, standard_arms
from datamask.study.embedded import Embedded, load_corpus, texts_of
from datamask.study.sweep import sweep_lambdas
from tests.report.build import corpus

TARGET = Target("outside", tuple(Item(f"Text {n} about law and code of year {n}.".encode()) for n in range(600, 640)))
SOME = ("random", "top-quality", "λ 0.5", "relaxation, pairwise")


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Embedded:
    folder = tmp_path_factory.mktemp("ablation")
    all_files, config, _ = corpus(folder)
    record(str(folder / "work"), all_files, config)
    return load_corpus(str(folder), 100_000)


@pytest.fixture(scope="module")
def table(embedded: Embedded) -> Ablation:
    return ablate(lambda seed: embedded, [0, 1], SOME, [TARGET])


def test_every_arm_spends_the_same_budget(table: Ablation) -> None:
    assert {row.columns["documents"].mean for row in table.rows} == {table.budget}


def test_no_arm_passes_a_bound_and_the_best_for_the_objective_is_the_relaxation(table: Ablation) -> None:
    rows = {row.arm: row.columns for row in table.rows}
    for metric in METRICS:
        assert all(columns[f"of its bound: {metric}"].mean <= 1 for columns in rows.values())
    best = max(rows, key=lambda name: rows[name]["objective: pairwise"].mean)
    assert best in ("relaxation, pairwise", "λ 0.5")
    top = max(rows, key=lambda name: rows[name]["quality: quality_score"].mean)
    assert top == "top-quality"


def test_a_random_choice_scores_zero_on_every_calibrated_metric(embedded: Embedded) -> None:
    judge = SelectionJudge(embedded, embedded.settings())
    found = [judge.columns(choose(embedded, Arm("random", {"solver": "random"}), seed)) for seed in range(12)]
    for metric in ("pairwise", "disf"):
        values = [columns[f"diversity: {metric}"] for columns in found]
        assert abs(np.mean(values)) < 3 * np.std(values) / math.sqrt(12) + 0.02


def test_top_quality_by_a_scorer_uses_that_scorer(embedded: Embedded) -> None:
    selected = choose(embedded, Arm("x", {"solver": "top-quality"}, scorer="heuristic"), 0)
    values = embedded.scores["heuristic"]
    assert values[selected].min() >= values[~selected].max()


def test_shards_select_their_share_each(embedded: Embedded) -> None:
    selected = choose(embedded, Arm("x", {"solver": "relaxation"}, shards=True), 0)
    assert abs(selected.sum() - round(0.2 * len(embedded))) <= 8


def test_arms_of_coverage_choose_by_the_texts(embedded: Embedded) -> None:
    arms = {arm.name: arm for arm in standard_arms(embedded)}
    by_words = choose(embedded, arms["relaxation, coverage of ngrams"], 0)
    by_embedding = choose(embedded, arms["relaxation, coverage of embedding"], 0)
    assert by_words.sum() == by_embedding.sum() and (by_words != by_embedding).any()
    words = arms["relaxation, coverage of ngrams"].changes
    shards = choose(embedded, Arm("x", {**words, "budget_tokens": None}, shards=True), 0)
    assert abs(shards.sum() - by_words.sum()) <= 8


def test_a_solver_that_cannot_is_listed_with_its_reason(embedded: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    from datamask.study import ablation

    wrong = Arm("wrong", {"solver": "relaxation", "budget_documents": 10_000, "select_ratio": None})
    monkeypatch.setattr(ablation, "standard_arms", lambda pool: [Arm("random", {"solver": "random"}), wrong])
    found = ablate(lambda seed: embedded, [0])
    assert [row.arm for row in found.rows] == ["random", "wrong"]
    assert "more than the pool" in found.rows[1].refused
    assert "more than the pool" in page.markdown(found)


def test_unknown_arms_and_no_seeds_are_refused(embedded: Embedded) -> None:
    with pytest.raises(ConfigError, match="names no arm; the arms are: random"):
        ablate(lambda seed: embedded, [0], ["nothing like it"])
    with pytest.raises(ConfigError, match="no seeds"):
        ablate(lambda seed: embedded, [])


def test_the_standard_arms_cover_every_solver_and_metric(embedded: Embedded) -> None:
    arms = standard_arms(embedded)
    assert len({arm.name for arm in arms}) == len(arms)
    solvers = {arm.changes.get("solver") for arm in arms}
    assert solvers == {"random", "top-quality", "semdedup", "direct", "greedy", "policy-gradient", "relaxation"}
    varied = set().union(*(arm.changes for arm in arms))
    assert {"max_lr", "n_epochs", "init", "n_rollout", "lamb"} <= varied


def test_tables_pages_and_files(table: Ablation, tmp_path: Path) -> None:
    paths = page.write_ablation(str(tmp_path), table)
    text = Path(paths["markdown"]).read_text(encoding="utf-8")
    assert "| random |" in text and "±" in text and "### What a model learns, by the coder" in text
    assert len(Path(paths["page"]).read_text(encoding="utf-8")) < 2_000_000


def test_the_coder_says_what_it_says_of_every_arm_against_random_draws(table: Ablation) -> None:
    assert table.judged is not None and table.judged_bytes > 1000
    assert set(table.judged.means) == {row.arm for row in table.rows}
    assert {contrast.first for contrast in table.judged.against} == set(table.judged.means) - {"random"}
    assert all(contrast.half_width > 0 for contrast in table.judged.against)
    assert [control.name for control in table.judged.controls] == ["A/A", "words shuffled", "planted junk"]


def test_without_targets_nothing_is_judged(embedded: Embedded) -> None:
    found = ablate(lambda seed: embedded, [0], ["random"])
    assert found.judged is None and "What a model learns" not in page.markdown(found)


@pytest.mark.slow
def test_a_document_taken_twice_counts_twice(embedded: Embedded) -> None:
    tokens = int(1.2 * embedded.tokens.sum())  # more than there is: most documents have to be taken twice
    changes = {"budget_tokens": tokens, "select_ratio": None, "repeat": 2}
    select = embedded.config.selection.model_copy(update={**changes, "algorithm": "pairwise", "lamb": 0.5})
    twice = replace(embedded, config=embedded.config.model_copy(update={"select": select}))
    found = ablate(lambda seed: twice, [0], ["relaxation, pairwise", "random", "greedy, pairwise"], [TARGET])
    rows = {row.arm: row for row in found.rows}
    assert "solver random cannot hold repeat" in rows["random"].refused
    assert "repeat above 1; these can: relaxation" in rows["greedy, pairwise"].refused
    assert "of its bound: facility" not in rows["relaxation, pairwise"].columns
    assert 0.9 < rows["relaxation, pairwise"].columns["of its bound: pairwise"].mean <= 1 + 1e-9
    assert found.judged_bytes > sum(map(len, texts_of(twice))) // 2
    [point] = sweep_lambdas(twice, [0.5]).points
    chosen = choose(twice, Arm("x", {"solver": "relaxation", "algorithm": "pairwise"}), 0)
    measured = twice.measure(chosen)
    assert set(np.unique(chosen)) == {0, 1, 2} or set(np.unique(chosen)) == {1, 2}
    assert 0.99 * tokens < measured["tokens"] <= tokens and measured["documents"] == (chosen > 0).sum()
    assert point.documents == pytest.approx(measured["documents"], abs=5)
    assert point.mean_quality == pytest.approx(np.repeat(twice.quality, chosen).mean(), abs=0.02)
    assert point.length_ratio == pytest.approx(np.repeat(twice.tokens, chosen).mean() / twice.tokens.mean(), rel=0.05)


def test_a_wrong_name_of_an_arm_is_refused_before_anything_is_solved(
    embedded: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datamask.study.ablation.SelectionJudge", lambda *_: pytest.fail("problems were solved"))
    with pytest.raises(ConfigError, match="--only nosuch names no arm"):
        ablate(lambda seed: embedded, [0], ["nosuch"])


def test_the_budget_is_said_in_its_unit(table: Ablation) -> None:
    assert f"a budget of {table.budget:,.0f} documents, the configuration's" in page.lead(table)
    assert "a budget of 75,370 tokens, the" in page.lead(replace(table, budget=75_370.0, in_tokens=True))


def test_nothing_is_judged_where_no_arm_beside_random_is_there(embedded: Embedded) -> None:
    with pytest.raises(ConfigError, match="name an arm beside random in --only"):
        ablate(lambda seed: embedded, [0], ["random"], [TARGET])
    config = load_config(None, ["select.token_ratio=0.1"], embedded.config.model_dump(mode="json"))
    found = ablate(lambda seed: replace(embedded, config=config), [0], ["semdedup"], [TARGET])
    assert found.judged is None and "cannot hold a budget in tokens" in found.rows[0].refused
