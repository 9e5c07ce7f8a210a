"""The ready configurations: each is valid, says all it needs, and scores with models of the kind it names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from datamask.config import Config, Select, load_config, resolve
from datamask.quality.prepare import prepare_quality
from datamask.selection.cover.counting import reads_words
from tests.quality import build, models

FOLDER = Path(__file__).resolve().parents[2] / "deployments" / "configurations"
NAMES = ["fineweb-dclm", "fineweb-edu", "fineweb-mask", "fineweb-pro", "fineweb-semdedup", "ultra-fineweb"]


def test_these_are_all() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.yaml")) == NAMES


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Small models of each kind, with the labels of the real ones."""
    fasttext = pytest.importorskip("fasttext")
    folder = tmp_path_factory.mktemp("models")
    for name, good, bad in (("dclm", "hq", "cc"), ("ultra", "pos", "neg"), ("wiki", "wiki", "cc")):
        lines = [f"__label__{good} {models.TEXTS[0]}", f"__label__{bad} {models.TEXTS[1]}"] * 20
        (folder / "train.txt").write_text("\n".join(lines))
        trained = fasttext.train_supervised(str(folder / "train.txt"), dim=4, epoch=2, thread=1, verbose=0)
        trained.save_model(str(folder / f"{name}.bin"))
    models.byte_pairs().save_pretrained(folder / "tokenizer")
    models.classifier(folder / "edu")
    models.language_model(folder / "prox")
    return {name: folder / f"{name}.bin" for name in ("dclm", "ultra", "wiki")} | {
        name: folder / name for name in ("edu", "prox", "tokenizer")
    }


def with_stand_ins(config: Config, stand_ins: dict[str, Path]) -> Config:
    scorers = []
    for scorer in config.quality.scorers:
        update = {"model": str(stand_ins[scorer.name])} if scorer.model else {}
        if scorer.tokenizer:
            update["tokenizer"] = str(stand_ins["tokenizer"])
        scorers.append(scorer.model_copy(update=update))
    return config.model_copy(update={"quality": config.quality.model_copy(update={"scorers": scorers})})


@pytest.mark.parametrize("name", NAMES)
def test_it_is_valid_and_scores(name: str, stand_ins: dict[str, Path], tmp_path: Path) -> None:
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    assert f"--config deployments/configurations/{name}.yaml" in text
    path = build.corpus(tmp_path / "in", [{"text": text} for text in models.TEXTS])
    config = load_config(FOLDER / f"{name}.yaml", [f"corpus.input=[{path}]"])
    assert config.select.solver == {"fineweb-mask": "policy-gradient", "fineweb-semdedup": "semdedup"}.get(
        name, "top-quality"
    )
    assert not reads_words(config.selection)  # for a figure of the report
    config, work = with_stand_ins(config, stand_ins), str(tmp_path / "work")
    encoder = replace(build.ENCODER, quality_head=config.encoder.quality_head)
    files = build.shards(config, work)
    prepare_quality([one.shard for one in files], encoder, config, work)
    files = [build.embed(one, work, np.eye(8)[:3], np.arange(3)) for one in files]
    table = build.table(build.scored(config, work, files, encoder))
    scores = [table[scorer.name].to_numpy() for scorer in config.quality.scorers]
    np.testing.assert_allclose(table["quality_score"].to_numpy(), sum(scores), rtol=1e-5)
    if config.filter.where:
        assert config.filter.where.split()[0] in table.column_names


def test_only_solvers_that_look_at_diversity_read_words() -> None:
    """Unless coverage is asked for, or a target, of which the documents that hold it are to be left out."""
    assert reads_words(resolve()) and reads_words(resolve(Select(solver="direct")))
    unseeing = resolve(Select(solver="random"))
    assert not reads_words(unseeing) and (unseeing.metric, unseeing.lamb) == ("pairwise", 0.5)
    assert not reads_words(resolve(Select.model_validate(unseeing.model_dump())))
    assert reads_words(resolve(Select(solver="random", algorithm="coverage")))
    assert reads_words(resolve(Select(solver="top-quality", target=["items.jsonl"])))
