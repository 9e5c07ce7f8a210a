"""`tune`: the space, the search, what is concluded, and the command on a small corpus."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor

from datamask.config import load, resolve
from datamask.errors import ConfigError, InputError
from datamask.storage import expand_patterns
from datamask.study import tune as module
from datamask.study.acquisition import expected, fit, most_promising
from datamask.study.inference import Contrast
from datamask.study.space import PAIRWISE, PARTS, TARGET, Space
from datamask.study.targets import read_targets
from datamask.study.tune import PointEvaluation, Tuning, check, concluded, readable, split
from tests.study.test_command import build, run
from tests.study.test_verdict import documents

EVERY = Space((*PARTS, TARGET))


def test_every_point_is_a_valid_setting_with_weights_that_add_up_to_one():
    points = [*EVERY.corners(), *EVERY.candidates(256, 3)]
    assert len(set(points)) == len(points) and EVERY.candidates(256, 3) == points[len(EVERY.corners()) :]
    for point in points:
        assert sum(point[1:]) == pytest.approx(1) and 0 <= point[0] <= 1 and min(point[1:]) >= 0
        settings = resolve(None, {**EVERY.changes(point), "target": ["x"]})
        given = {f"coverage-{part}": weight for part, weight in zip(EVERY.parts, point[1:], strict=True) if weight}
        if given.pop("coverage-pairwise", None):
            given[PAIRWISE] = dict(zip(EVERY.parts, point[1:], strict=True))[PAIRWISE]
        assert settings.metrics == pytest.approx(given) and settings.lamb == point[0]


def test_points_cover_the_space_and_many_lack_a_part():
    points = np.array(EVERY.candidates(1024, 0))
    assert points[:, 0].mean() == pytest.approx(0.5, abs=0.02)
    np.testing.assert_allclose(points[:, 1:].mean(axis=0), 0.25, atol=0.02)
    assert ((points[:, 1:] == 0).mean(axis=0) > 0.2).all()


@pytest.mark.parametrize("parts", [(), ("pairwise", "pairwise"), ("words",)])
def test_parts_that_are_none_are_refused(parts):
    with pytest.raises(ConfigError, match="each once, of pairwise, embedding, ngrams, target"):
        Space(parts)


def surface(point: tuple[float, ...]) -> float:
    return 2.1 + 0.1 * (point[0] - 0.3) ** 2 + 0.05 * (point[2] - 0.8) ** 2


def test_the_search_finds_what_a_random_one_does_not_in_as_many_readings():
    generator = np.random.default_rng(0)
    candidates = EVERY.candidates(512, 0)
    seen = [*EVERY.corners(), *candidates[:6]]
    bits = [surface(point) + 0.003 * generator.normal() for point in seen]
    for _ in range(14):
        place = most_promising(fit(seen, bits), candidates, seen)
        assert candidates[place] not in seen
        seen.append(candidates[place])
        bits.append(surface(seen[-1]) + 0.003 * generator.normal())
    found = surface(seen[int(np.argmin(expected(fit(seen, bits), seen)[0]))])
    chance = np.array([[surface(candidates[n]) for n in generator.choice(512, len(seen))] for _ in range(400)])
    assert found < np.median(chance.min(axis=1)) and found < 2.1 + 0.004


def test_the_expected_deviation_is_without_a_readings_noise():
    generator = np.random.default_rng(1)
    points = EVERY.candidates(60, 1)
    model = fit(points, [surface(point) + 0.02 * generator.normal() for point in points])
    assert isinstance(model, GaussianProcessRegressor)
    mean, deviation = expected(model, points)
    assert np.abs(mean - [surface(point) for point in points]).mean() < 0.02
    assert (deviation < model.predict(np.array(points), return_std=True)[1]).all()


def contrast(difference: float, p: float) -> Contrast:
    return Contrast("a", "b", difference, 0.01, p, {}, p)


@pytest.mark.parametrize(
    "random,own,own_random,says,changed",
    [
        ((-0.03, 0.001), (-0.02, 0.001), (-0.01, 0.3), "random choice, and better than the corpus", "lamb"),
        ((-0.03, 0.001), (-0.01, 0.3), (-0.02, 0.01), "and not told apart from the corpus", "lamb"),
        ((-0.01, 0.3), (0.02, 0.01), (-0.03, 0.01), "tuning found nothing better", None),
        ((-0.01, 0.02), (0.02, 0.01), (-0.03, 0.01), "tuning found nothing better", None),
        ((-0.01, 0.3), (-0.02, 0.01), (0.01, 0.3), "nothing beats a random choice", "solver"),
        ((0.02, 0.01), (-0.02, 0.01), (0.04, 0.01), "nothing beats a random choice", "solver"),
    ],
)  # fmt: skip
def test_what_is_concluded(random, own, own_random, says, changed):
    said, changes = concluded(
        [contrast(*random), contrast(*own), contrast(*own_random)], EVERY, (0.3, 0, 1, 0, 0), ["t"]
    )
    assert says in said
    if changed == "lamb":
        assert changes["lamb"] == 0.3 and changes["target"] == ["t"]
    else:
        assert changes == ({"solver": "random"} if changed else {})


def test_a_choice_too_small_to_be_read_counts_as_the_worst():
    done = [
        PointEvaluation((0.5,), 2.0, 1, 0.0),
        PointEvaluation((0.6,), float("nan"), 1, 0.0),
        PointEvaluation((0.7,), 2.5, 1, 0.0),
    ]
    assert readable(done) == ([(0.5,), (0.6,), (0.7,)], [2.0, 2.5, 2.5])
    with pytest.raises(InputError, match="ask for fewer with --bytes"):
        readable(done[1:2])


def test_half_of_the_sets_are_held_out_and_the_same_twice():
    assert split(8, Tuning()) == split(8, Tuning()) and len(split(8, Tuning())) == 4
    assert len(split(3, Tuning(held_out=2))) == 2 and len({tuple(split(9, Tuning(seed=s))) for s in range(5)}) > 1


@pytest.mark.parametrize(
    "changes,paths,message",
    [
        ({"evaluations": 3}, 2, "--evaluations 3: at least 12"),
        ({"pools": 1}, 2, "--pools 1: at least 2"),
        ({"draws": 3}, 2, "--draws 3: at least 8"),
        ({}, 1, "name two or more"),
        ({"held_out": 2}, 2, "--held-out 2: 1 to 1 of 2"),
    ],
)
def test_settings_that_nothing_can_be_tuned_with(changes, paths, message):
    with pytest.raises(ConfigError, match=message):
        check(replace(Tuning(), **changes), ["t"] * paths)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("out"))


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("sets")
    for number in range(4):
        rows = [
            {"question": f"Which is {n}?", "answer": t.decode()} for n, t in enumerate(documents(90 + number, 30, 1))
        ]
        (folder / f"set{number}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return str(folder / "*.jsonl")


QUICK = ("--evaluations", "13", "--documents", "200", "--pools", "2", "--bytes", "3000")


@pytest.mark.slow
def test_it_writes_a_configuration_goes_on_where_it_stopped_and_ends_the_same(
    corpus,
    sets,
    tmp_path,
    capsys,
    monkeypatch,
):
    arguments = ["tune", corpus, "--targets", sets, *QUICK, "--to"]
    evaluate = module._Bench.evaluate
    made: list[object] = []

    def stopping(self, point):
        if len(made) == 10:
            raise KeyboardInterrupt
        made.append(point)
        return evaluate(self, point)

    monkeypatch.setattr(module._Bench, "evaluate", stopping)
    run(*arguments, tmp_path / "a.yaml")
    assert not (tmp_path / "a.yaml").exists() and len(made) == 10
    capsys.readouterr()
    made.clear()
    assert run(*arguments, tmp_path / "a.yaml", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert len(made) == 3 and len(found["evaluations"]) == 13  # ten of them were kept
    assert len(found["tuned_on"]) == len(found["held_out"]) == 2
    assert not set(found["tuned_on"]) & set(found["held_out"])
    assert set(found["contrasts"][0]["targets"]) == set(found["held_out"])
    text = (tmp_path / "a.yaml").read_text()
    assert text.startswith("# Tuned by 13 choices") and f"# So: {found['says']}." in text
    config = load(tmp_path / "a.yaml")
    for name, value in found["changes"].items():
        told = getattr(config.select, name)
        assert (told.atoms if name == "coverage" else told) == (value["atoms"] if name == "coverage" else value)
    assert run(*arguments, tmp_path / "b.yaml") == 0
    assert len(made) == 3 and "The best of what was tried" in capsys.readouterr().out
    assert (tmp_path / "b.yaml").read_text() == text


@pytest.mark.slow
def test_with_aim_choices_are_told_the_sets_tuned_on_and_none_held_out(corpus, sets, monkeypatch):
    from datamask.study import chosen

    told: list[tuple[str, ...]] = []
    given: list[str] = []
    untold = chosen._untold

    def watched(settings, judged):
        told.append(tuple(settings.target))
        given.extend(untold(settings, judged))
        return untold(settings, judged)

    monkeypatch.setattr(chosen, "_untold", watched)
    tuning = Tuning(evaluations=12, documents=200, pools=2, bytes=3000, target_bytes=900, aim=True)
    found, config = module.tune(str(corpus), [sets], tuning)
    names = {path.rsplit("/", 1)[1].removesuffix(".jsonl") for paths in told for path in paths}
    assert names == set(found.tuned_on) and "target" in found.parts
    read = [item.whole.decode() for t in read_targets(expand_patterns([sets]), 900) for item in t.items]
    assert given and not set(given) & set(read)
    if found.changes.get("target"):
        assert len(config.select.target) == 4  # the configuration may know all of them


@pytest.mark.parametrize(
    "arguments,message",
    [
        ([], "no targets; name two files or more"),
        (["--targets", "ONE"], "name two or more, since some are held out whole"),
        (["--targets", "SETS", "--to", "nowhere/t.yaml"], "there is no folder"),
        (["--targets", "SETS", "--evaluations", "5"], "--evaluations 5: at least 12"),
        (["--targets", "SETS", "--bytes", "50000000", *QUICK[:6]], "is more than the own settings' choice holds"),
    ],
)
def test_refusals(corpus, sets, arguments, message, capsys):
    given = {"SETS": sets, "ONE": sets.replace("*", "set0")}
    assert run("tune", corpus, *(given.get(part, part) for part in arguments)) in (2, 3)
    assert message in capsys.readouterr().err
