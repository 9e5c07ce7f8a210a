"""The sweep over λ: certificates, monotony, warm starts, picks."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from datamask.cli import main
from datamask.config import load_config
from datamask.errors import ConfigError, InputError
from datamask.report.embedding_sample import Sample
from datamask.selection.arrays import select
from datamask.stages import record
from datamask.study import sweep as front_page
from datamask.study.commands import write_lamb
from datamask.study.embedded import Embedded, load_corpus, texts_of
from datamask.study.sweep import Sweep, envelope, pick_point, sweep_lambdas
from tests.report.build import corpus

LAMBDAS = np.linspace(0, 1, 6)


@pytest.fixture(scope="module", params=["pairwise", "DiSF"])
def swept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Embedded, Sweep]:
    folder = tmp_path_factory.mktemp("sweep")
    all_files, config, _ = corpus(folder, metric=request.param)
    record(str(folder / "work"), all_files, config)
    embedded = load_corpus(str(folder), 100_000)
    return embedded, sweep_lambdas(embedded, LAMBDAS)


@pytest.mark.slow
def test_coverage_of_words_is_swept_with_the_texts(tmp_path: Path) -> None:
    all_files, config, _ = corpus(tmp_path, metric="coverage")
    record(str(tmp_path / "work"), all_files, config)
    embedded = load_corpus(str(tmp_path), 100_000)
    front = sweep_lambdas(embedded, [0.5, 1.0])
    texts = [text.decode() for text in texts_of(embedded)]
    for point in front.points:
        settings = embedded.settings(lamb=point.lamb)
        cold = select(embedded.features, embedded.quality, tokens=embedded.tokens, settings=settings, texts=texts)
        assert point.objective == pytest.approx(cold.objective, abs=2e-2)
        assert point.upper_bound is not None and point.upper_bound >= cold.objective - 1e-9


def test_without_vectors_what_is_measured_by_them_is_told_as_unknown(
    swept: tuple[Embedded, Sweep], monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded, front = swept
    monkeypatch.setattr(Sample, "embedded", False)
    measured = embedded.measure(np.arange(len(embedded.tokens)) < 9)
    known = {name: measured[name] for name in ("vendi", "near_duplicates")}
    without = replace(front, points=tuple(replace(point, **known) for point in front.points))
    assert front_page.front_rows(without)[1][0][7:9] == ["–", "–"]
    json.dumps(asdict(without), allow_nan=False)


def test_a_record_is_found_from_every_place_a_user_names(tmp_path: Path) -> None:
    all_files, config, _ = corpus(tmp_path)
    record(str(tmp_path / "work"), all_files, config)
    (tmp_path / "releases" / "0001-abc").mkdir(parents=True)
    for place in (tmp_path, tmp_path / "work", tmp_path / "latest", tmp_path / "releases" / "0001-abc"):
        found = load_corpus(str(place), 100_000)
        assert found.config == config and found.work == str(tmp_path / "work")
        assert [f.shard for f in found.sample.files] == [f.shard for f in all_files]
    Path(all_files[0].embeddings.path).unlink()
    with pytest.raises(InputError, match="gone since the last run"):
        load_corpus(str(tmp_path), 100_000)
    with pytest.raises(InputError, match="belongs to no curated corpus"):
        load_corpus(str(tmp_path / "nowhere" / "deep" / "down"), 100_000)


def test_every_point_is_what_a_cold_solve_finds(swept: tuple[Embedded, Sweep]) -> None:
    embedded, front = swept
    for point in front.points:
        settings = embedded.settings(lamb=point.lamb)
        cold = select(embedded.features, embedded.quality, settings=settings)
        assert point.objective == pytest.approx(cold.objective, abs=5e-3)
        assert point.upper_bound >= max(cold.objective, point.objective) - 1e-9


def test_more_weight_on_quality_never_lowers_it(swept: tuple[Embedded, Sweep]) -> None:
    """Every λ has the best of all selections found, so this holds exactly, not only of exact solutions."""
    for before, after in zip(swept[1].points, swept[1].points[1:]):
        assert after.quality >= before.quality - 1e-9
        assert after.diversity <= before.diversity + 1e-9
    for point in swept[1].points:
        for other in swept[1].points:
            assert point.objective >= point.lamb * other.quality + (1 - point.lamb) * other.diversity - 1e-9


def test_the_bounds_are_convex_in_lambda(swept: tuple[Embedded, Sweep]) -> None:
    points = swept[1].points
    for before, point, after in zip(points, points[1:], points[2:]):
        share = (point.lamb - before.lamb) / (after.lamb - before.lamb)
        assert point.upper_bound <= (1 - share) * before.upper_bound + share * after.upper_bound + 1e-9


def test_the_knee_without_calibration_is_measured_from_a_random_selection(tmp_path: Path) -> None:
    all_files, config, _ = corpus(tmp_path)
    raw = config.model_copy(update={"select": config.selection.model_copy(update={"calibrate": False})})
    record(str(tmp_path / "work"), all_files, raw)
    front = sweep_lambdas(load_corpus(str(tmp_path), 100_000), LAMBDAS)
    assert all(point.diversity < 0 for point in front.points)  # minus a mean cosine: 0 would be no reference
    assert front.knee not in (0, len(front.points) - 1)


def test_the_envelope_of_bounds_lies_above_every_point(swept: tuple[Embedded, Sweep]) -> None:
    front = swept[1]
    curve = envelope(front.points)
    for point in front.points:
        most = np.interp(point.quality, [row["quality"] for row in curve], [row["diversity"] for row in curve])
        assert point.diversity <= most + 1e-3


def test_overlaps_join_neighbours(swept: tuple[Embedded, Sweep]) -> None:
    points = swept[1].points
    assert points[0].overlap_before is None
    assert all(0 <= point.overlap_before <= 1 for point in points[1:])


def test_picks(swept: tuple[Embedded, Sweep]) -> None:
    front = swept[1]
    assert pick_point(front, "knee") is front.points[front.knee]
    middle = front.points[3].mean_quality
    chosen = pick_point(front, f"quality={middle}")
    assert chosen.mean_quality >= middle and all(
        point.mean_quality < middle for point in front.points if point.lamb < chosen.lamb
    )
    with pytest.raises(ConfigError, match="the greatest is"):
        pick_point(front, "quality=7")
    for wish in ("elbow", "quality", "quality=high"):
        with pytest.raises(ConfigError, match="valid are knee"):
            pick_point(front, wish)


def test_a_lambda_outside_is_refused(swept: tuple[Embedded, Sweep]) -> None:
    with pytest.raises(ConfigError, match="between 0 and 1"):
        sweep_lambdas(swept[0], [0.5, 1.5])


def test_page_and_files(swept: tuple[Embedded, Sweep], tmp_path: Path) -> None:
    paths = front_page.write_front(str(tmp_path), swept[1])
    html = Path(paths["page"]).read_text(encoding="utf-8")
    assert len(html) < 2_000_000 and "The knee is at λ" in html
    assert Path(paths["picture"]).read_bytes().startswith(b"\x89PNG")
    assert len(json.loads(Path(paths["data"]).read_text())["points"]) == len(LAMBDAS)


def test_a_budget_in_numbers_is_scaled_to_the_sample(tmp_path: Path) -> None:
    all_files, config, _ = corpus(tmp_path)
    budget = config.selection.model_copy(update={"budget_documents": 80})
    record(str(tmp_path / "work"), all_files, config.model_copy(update={"select": budget}))
    half = load_corpus(str(tmp_path), 245)
    assert half.share == pytest.approx(245 / 491)
    assert half.settings().budget_documents == round(80 * half.share)


def test_the_pick_is_written_into_a_configuration_with_its_comments(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("# ours\nselect:\n  lamb: 0.5  # halfway\n  seed: 3\ncorpus:\n  input: [a]  # there\n")
    write_lamb(path, 0.7)
    assert path.read_text() == "# ours\nselect:\n  lamb: 0.7  # halfway\n  seed: 3\ncorpus:\n  input: [a]  # there\n"
    path.write_text("# only this\ncorpus:\n  input: [a]\n")
    write_lamb(path, 0.3)
    assert load_config(path).select.lamb == 0.3 and path.read_text().startswith("# only this")
    path.write_text("# select:\n#   lamb: 0.1\n")
    write_lamb(path, 0.3)
    assert path.read_text() == "# select:\n#   lamb: 0.1\nselect:\n  lamb: 0.3\n"
    path.write_bytes(b"\xef\xbb\xbf# ours\r\nselect:\r\n  lamb: 0.5  # halfway\r\n")
    write_lamb(path, 0.3)
    assert path.read_bytes() == b"\xef\xbb\xbf# ours\r\nselect:\r\n  lamb: 0.3  # halfway\r\n"
    path.write_text("select: 3\n")
    with pytest.raises(ConfigError):
        write_lamb(path, 0.3)
    with pytest.raises(ConfigError, match="cannot read"):
        write_lamb(tmp_path / "none.yaml", 0.3)


def test_the_page_says_how_many_documents_selections_of_a_budget_of_tokens_hold(swept: tuple[Embedded, Sweep]) -> None:
    front = swept[1]
    points = [replace(point, documents=113 + 50 * place) for place, point in enumerate(front.points)]
    assert "selections of 113 to 363 from" in front_page.render(replace(front, points=tuple(points)))
    points = [replace(point, documents=113) for point in points]
    assert "selections of 113 from" in front_page.render(replace(front, points=tuple(points)))


def test_a_wrong_pick_is_refused_before_anything_is_solved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    all_files, config, _ = corpus(tmp_path)
    record(str(tmp_path / "work"), all_files, config)
    monkeypatch.setattr("datamask.study.embedded.load_corpus", lambda *_: pytest.fail("the corpus was read"))
    with pytest.raises(SystemExit):
        main(["sweep", str(tmp_path), "--pick", "best"])
    assert "valid are knee, or quality=NUMBER" in capsys.readouterr().err
