"""The ablation and its proxy model, small."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from datamask.errors import ConfigError
from datamask.report import arms as page
from datamask.report.ablation import METRICS, Ablation, Arm, Judge, ablate, choose, hold_out, standard_arms
from datamask.report.embedded import Embedded, load_corpus
from datamask.report.proxy import (
    MEANS,
    ProxySettings,
    _batches,
    build_model,
    choice_blocks,
    evaluate,
    pack,
    steps_of,
    texts,
    train,
    train_tokenizer,
)
from datamask.stages import record
from tests.report.build import corpus

TINY = ProxySettings(
    tokens=4096, held_out=8, vocabulary=400, width=32, layers=1, heads=2, context=32, batch=8, rate=1e-2, device="cpu"
)
SOME = ("random", "top-quality", "λ 0.5", "relaxation, pairwise")


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Embedded:
    folder = tmp_path_factory.mktemp("ablation")
    all_files, config, _ = corpus(folder)
    record(str(folder / "work"), all_files, config)
    return load_corpus(str(folder), 100_000)


@pytest.fixture(scope="module")
def table(embedded: Embedded) -> Ablation:
    return ablate(lambda seed: embedded, [0, 1], SOME, TINY)


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
    judge = Judge(embedded, embedded.settings())
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


def test_held_out_documents_are_of_every_domain_and_no_arm_sees_them(embedded: Embedded) -> None:
    held = hold_out(embedded, 8, seed=0)
    groups = embedded.groups["domain"]
    assert {name: int(held[groups == name].sum()) for name in set(groups)} == dict.fromkeys(set(groups), 8)
    kept = embedded.subset(~held)
    assert not set(kept.rows) & set(embedded.rows[held])


def test_a_solver_that_cannot_is_listed_with_its_reason(embedded: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    from datamask.report import ablation

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
    paths = page.write(str(tmp_path), table)
    text = Path(paths["markdown"]).read_text(encoding="utf-8")
    assert "| random |" in text and "±" in text and "### Proxy model" in text
    assert len(Path(paths["page"]).read_text(encoding="utf-8")) < 2_000_000


def test_the_proxy_has_a_loss_for_every_domain_of_every_arm(table: Ablation) -> None:
    assert list(table.proxy) == ["random", "top-quality", "λ 0.5"]
    for losses in table.proxy.values():
        assert set(losses) == {"web", "news", "legal", "code", *MEANS}
        assert all(
            0 < value.mean < math.log(TINY.vocabulary) and value.runs == 2
            for name, value in losses.items()
            if name != "against random"
        )
        mean = np.mean([losses[domain].mean for domain in ("web", "news", "legal", "code")])
        assert losses["all domains alike"].mean == pytest.approx(mean)
    assert table.proxy["random"]["against random"].mean == 0


def test_every_arm_is_trained_on_the_same_number_of_tokens(embedded: Embedded) -> None:
    tokenizer = train_tokenizer(texts(embedded, np.arange(100)), TINY.vocabulary)
    wanted = steps_of(TINY) * TINY.batch
    for documents in (3, len(embedded)):  # fewer tokens than are trained on, and more
        chosen = np.arange(len(embedded)) < documents
        blocks, passes = choice_blocks(tokenizer, embedded, chosen, TINY, 0)
        assert 0 < len(blocks) <= wanted and passes == wanted / len(blocks)
        seen = torch.cat(list(_batches(len(blocks), TINY.batch, steps_of(TINY), 0)))
        counts = torch.bincount(seen, minlength=len(blocks))
        assert len(seen) == wanted and counts.max() - counts.min() <= 1


def test_the_proxy_learns_what_it_is_trained_on_and_is_the_same_twice(embedded: Embedded) -> None:
    tokenizer = train_tokenizer(texts(embedded, np.arange(100)), TINY.vocabulary)
    blocks = pack(tokenizer, texts(embedded, np.arange(300)), TINY.context)
    state = torch.random.get_rng_state()
    untrained, trained = build_model(TINY, 5), train(blocks, TINY, 5)
    assert torch.equal(torch.random.get_rng_state(), state)
    before, after = evaluate(untrained, blocks, TINY), evaluate(trained, blocks, TINY)
    assert before == pytest.approx(math.log(TINY.vocabulary), rel=0.05) and after < 0.6 * before
    assert evaluate(train(blocks, TINY, 5), blocks, TINY) == after


def test_packed_blocks_are_the_documents_end_to_end(embedded: Embedded) -> None:
    documents = texts(embedded, np.arange(20))
    tokenizer = train_tokenizer(documents, 400)
    blocks = pack(tokenizer, documents, 16)
    assert blocks.shape[1] == 17
    joined = tokenizer.decode(blocks.flatten().tolist(), skip_special_tokens=True)
    assert "".join(documents).startswith(joined) and len(joined) > 0.8 * sum(map(len, documents))
