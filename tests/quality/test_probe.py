"""A probe: honest in cross validation, saved without pickle, and refused where it does not belong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
from typer.testing import CliRunner

from datamask import storage
from datamask.config import Config
from datamask.errors import ConfigError, InputError, ModelError
from datamask.quality import prepare_quality
from datamask.quality.commands import fit_quality
from datamask.quality.documents import Documents
from datamask.quality.fit import agreement, fit_probe, out_of_fold, read_labels
from datamask.quality.probe import CHECK_SENTENCES, features, read_probe, save_probe
from tests.quality import build, models, real
from tests.quality.test_heuristic import PROSE

GOOD, BAD = ("theorem", "lemma", "field", "proof", "definition"), ("bargain", "cheap", "shoes", "offer", "newsletter")


def labelled(count: int, seed: int = 0) -> list[dict]:
    """Texts whose label shows in their words and not in their form; in ten sources."""
    generator = np.random.default_rng(seed)
    made = []
    for number in range(count):
        label = int(generator.integers(2))
        words = generator.choice(PROSE.split(), size=80).tolist()
        for at in generator.integers(80, size=12):
            words[at] = str(generator.choice(GOOD if label else BAD))
        made.append({"text": " ".join(words), "label": label, "source": f"s{number % 10}"})
    return made


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A static sentence-transformers model of random vectors."""
    folder = tmp_path_factory.mktemp("encoder")
    tokenizer = models.word_pieces().backend_tokenizer
    weights = np.random.default_rng(0).normal(size=(tokenizer.get_vocab_size(), 32)).astype(np.float32)
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=weights), Normalize()]).save(str(folder))
    return folder


def run(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(fit_quality)
    result = CliRunner().invoke(app, list(arguments))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def with_encoder(config: Config, folder: Path) -> Config:
    settings = config.encoder.model_copy(update={"model": str(folder), "dimensions": 32})
    return config.model_copy(update={"encoder": settings})


def write(path: Path, rows: list[dict]) -> str:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return str(path)


def test_fit_then_score_like_any_other_scorer(encoder: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "labels.parquet", labelled(400))
    arguments = ["--labels", file, "--encoder", str(encoder), "--set", "encoder.dimensions=32", "--json"]
    described = json.loads(run(*arguments, "--output", str(tmp_path / "probe")))
    found = described["agreement"]
    assert described["group"] == "source" and described["positive"] == "1"
    assert found["probe"]["measure"] == "AUC" and found["probe"]["pooled"] > 0.9
    assert len(found["probe"]["folds"]) == 5
    assert abs(found["heuristic"]["pooled"] - 0.5) < 0.2 and abs(found["length"]["pooled"] - 0.5) < 0.2
    assert found["probe, signals alone"]["pooled"] < found["probe"]["pooled"]
    assert sorted(path.name for path in (tmp_path / "probe").iterdir()) == ["probe.json", "probe.safetensors"]

    run(*arguments, "--output", str(tmp_path / "again"))
    for name in ("probe.json", "probe.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "probe" / name).read_bytes()

    from datamask.encoders.choose import prepare_encoder
    from datamask.encoders.embed import embed_shard

    unseen = labelled(120, seed=1)
    path = build.corpus(tmp_path / "in", unseen)
    config = build.configure(path, scorers=[{"kind": "probe", "model": str(tmp_path / "probe")}])
    config = with_encoder(config, encoder)
    work = str(tmp_path / "work")
    ref = prepare_encoder([], config, work)
    files = [replace(one, embeddings=embed_shard(one, ref, config, work)) for one in build.shards(config, work, ref)]
    table = build.table(build.scored(config, work, files, ref))
    score = table["probe"].to_numpy()
    label = np.array([row["label"] for row in unseen])
    assert ((score > 0.5) == label).mean() > 0.85 and (score >= 0).all() and (score <= 1).all()


def test_another_encoder_is_refused(encoder: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "labels.parquet", labelled(100))
    arguments = ["--labels", file, "--encoder", str(encoder), "--set", "encoder.dimensions=32"]
    run(*arguments, "--output", str(tmp_path / "probe"))
    probe, check, described = read_probe(tmp_path / "probe")
    assert check.shape == (len(CHECK_SENTENCES), 32)
    save_probe(tmp_path / "turned", probe, described, -check)

    from datamask.encoders.choose import prepare_encoder

    config = build.configure(tmp_path, scorers=[{"kind": "probe", "model": str(tmp_path / "turned")}])
    config = with_encoder(config, encoder)
    ref = prepare_encoder([], config, str(tmp_path / "work"))
    with pytest.raises(ModelError, match=r"was fitted with encoder .* the run's encoder differs \(cosine -1.00"):
        prepare_quality([], ref, config, str(tmp_path / "work"))


def test_signals_alone_and_numbers(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    rows = []
    for _ in range(200):
        share = generator.uniform()
        lines = [PROSE.split("\n")[k % 5] if generator.uniform() < share else "Home | About" for k in range(12)]
        rows.append({"text": "\n".join(lines), "quality": share})
    file = write(tmp_path / "labels.parquet", rows)
    output = run("--labels", file, "--column", "quality", "--encoder", "none", "--output", str(tmp_path / "probe"))
    assert "Spearman on unseen documents (5 folds, documents split at random)" in " ".join(output.split())
    _, _, described = read_probe(tmp_path / "probe")
    assert described["dimensions"] == 0 and described["agreement"]["probe"]["pooled"] > 0.85
    config = build.configure(tmp_path, scorers=[{"kind": "probe", "model": str(tmp_path / "probe")}])
    prepare_quality([], build.ENCODER, config, str(tmp_path / "work"))


def test_labels_that_are_noise_score_as_noise() -> None:
    """What leaks in a dishonest cross validation shows here: the best of many features on random labels."""
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(300, 100))
    labels = read_labels(generator.integers(2, size=300).tolist(), None, None, "here")
    predicted, fold = out_of_fold(inputs, labels, 0, "here")
    assert abs(agreement(predicted, labels, fold).pooled - 0.5) < 0.1


def test_groups_are_kept_apart() -> None:
    """A feature that names the group predicts nothing on groups it has not seen."""
    groups = np.repeat(np.arange(30), 10)
    level = np.random.default_rng(1).integers(2, size=30)
    inputs = np.eye(30)[groups]
    known = read_labels(level[groups].tolist(), None, None, "here")
    apart = read_labels(level[groups].tolist(), groups.tolist(), None, "here")
    for labels, low, high in ((known, 0.95, 1), (apart, 0, 0.7)):
        predicted, fold = out_of_fold(inputs, labels, 0, "here")
        assert low <= agreement(predicted, labels, fold).pooled <= high


@pytest.mark.parametrize(
    ("rows", "arguments", "message"),
    [
        (labelled(40), [], "40 labelled documents; at least 50"),
        ([{**row, "label": None} for row in labelled(60)], [], "60 rows have no label"),
        ([{**row, "label": str(n % 3)} for n, row in enumerate(labelled(60))], [], "expected numbers, or two values"),
        (labelled(60), ["--column", "labels"], 'no column .labels.; did you mean "label"'),
        (labelled(60), ["--positive", "good"], "no label 'good'"),
        ([{**row, "source": str(row["label"])} for row in labelled(60)], [], "labels and groups say the same"),
    ],
)
def test_labels_that_cannot_be_learned(rows: list, arguments: list, message: str, tmp_path: Path) -> None:
    file = write(tmp_path / "labels.parquet", rows)
    with pytest.raises(InputError, match=message):
        run("--labels", file, "--encoder", "none", "--output", str(tmp_path / "probe"), *arguments)
    with pytest.raises(InputError, match="not a parquet file"):
        run("--labels", str(tmp_path), "--encoder", "none", *arguments)
    assert not (tmp_path / "probe").exists()


def test_the_static_encoder_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name the model the run uses with --encoder"):
        run("--labels", write(tmp_path / "labels.parquet", labelled(60)), "--output", str(tmp_path / "probe"))


def test_broken_probes(tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match=r"no probe.safetensors and no probe.json there; fit one with `datamask fit-qual"
    ):
        read_probe(tmp_path)
    rows = labelled(60)
    texts = [row["text"] for row in rows]
    inputs = features(None, Documents(np.arange(60), texts))
    probe = fit_probe(inputs, read_labels([row["label"] for row in rows], None, None, "here"), 0)
    save_probe(tmp_path, probe, {"dimensions": 0, "encoder": None}, None)
    np.testing.assert_allclose(read_probe(tmp_path)[0].predict(inputs), probe.predict(inputs), atol=1e-5)
    weights = (tmp_path / "probe.safetensors").read_bytes()
    (tmp_path / "probe.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(ModelError, match="probe.safetensors is broken"):
        read_probe(tmp_path)
    described = storage.read_json(str(tmp_path / "probe.json"))
    (tmp_path / "probe.json").write_text(json.dumps({**described, "signals": ["words"]}))
    with pytest.raises(ModelError, match="fitted on other signals"):
        read_probe(tmp_path)


@pytest.mark.slow
def test_on_real_pages_it_beats_the_rules() -> None:
    """Main content against whole pages, a page's two texts never on both sides."""
    import pyarrow.compute as pc

    real.documents()
    table = pq.read_table(sorted(real.FOLDER.glob("*.parquet"))[0], columns=["text", "source", "meta"])
    table = table.filter(pc.is_in(table["source"], pa.array(["wcxb_main", "wcxb_page"])))
    rows = [row for row in table.to_pylist() if row["text"] and row["text"].strip()]
    texts = [row["text"] for row in rows]
    pages = [json.loads(row["meta"])["page"] for row in rows]
    labels = read_labels([row["source"] for row in rows], pages, "wcxb_main", "real")
    documents = Documents(np.arange(len(texts)), texts)
    predicted, fold = out_of_fold(features(None, documents), labels, 0, "real")
    assert agreement(predicted, labels, fold).pooled > 0.9
