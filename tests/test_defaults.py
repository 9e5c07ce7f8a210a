"""Defaults that depend on other settings are the same in the run form, YAML, the command line and Python."""

import json

import numpy as np
import pytest
from pydantic import TypeAdapter

from datamask import extensions, select
from datamask.config import (
    COUNT_DOCUMENTS,
    POOL_PARTS,
    TARGET_PARTS,
    Config,
    Select,
    change_settings,
    load_config,
    resolve,
    to_yaml,
)
from datamask.selection.solvers import solver_class
from flows.curate import curate as flow
from flows.functions import _config

WORDS = "one two three four five six seven eight nine ten on off red green blue cyan pink gold grey black white".split()
GENERATOR = np.random.default_rng(0)
TEXTS = [" ".join(GENERATOR.choice(WORDS, 40)) for _ in range(50)]
FEATURES, QUALITY = GENERATOR.normal(size=(50, 8)), GENERATOR.random(50)
TOKENS = GENERATOR.integers(20, 60, 50)
CASES = {
    "nothing": ({}, {"algorithm": "coverage", "parts": POOL_PARTS, "lamb": 0.7, "token_ratio": 0.1}),
    "target": ({"target": ["FILE"]}, {"algorithm": "coverage", "parts": TARGET_PARTS, "lamb": 0.3, "token_ratio": 0.1}),
    "DiSF": ({"algorithm": "DiSF"}, {"algorithm": "DiSF", "lamb": 0.5, "token_ratio": 0.1}),
    "greedy": ({"solver": "greedy"}, {"algorithm": "coverage", "parts": POOL_PARTS, "lamb": 0.7, "select_ratio": 0.1}),
    "top-quality": ({"solver": "top-quality"}, {"algorithm": "Pair_simi", "lamb": 0.5, "token_ratio": 0.1}),
    "documents": (
        {"budget_documents": 5},
        {"algorithm": "coverage", "parts": POOL_PARTS, "lamb": 0.7, "budget_documents": 5},
    ),
    "set": (
        {"lamb": 0.6, "select_ratio": 0.2},
        {"algorithm": "coverage", "parts": POOL_PARTS, "lamb": 0.6} | {"select_ratio": 0.2},
    ),
}


@pytest.fixture(params=CASES)
def case(request, tmp_path):
    """Settings of `select`, and what they come to."""
    given, wanted = CASES[request.param]
    if "target" in given:
        path = tmp_path / "target.txt"
        path.write_text(" ".join([*WORDS, *WORDS]))
        given = {**given, "target": [str(path)]}
    return given, {**wanted, "seed": 0}


def form(given):
    """The configuration of a run that Prefect's form starts: every setting is posted, what was not touched as null."""
    schema = flow.parameters.model_dump()
    untouched = json.loads(Config().model_dump_json())
    posted = {**untouched, "select": {**untouched["select"], **given}}
    assert {"input", "output", "target", "lamb", "config"} <= schema["properties"].keys()
    return TypeAdapter(Config).validate_python(posted)


def test_every_way_in_comes_to_the_same(case, tmp_path):
    given, wanted = case
    path = tmp_path / "given.yaml"
    path.write_text(to_yaml(Config(select=Select(**given))))
    by_file = load_config(path)
    by_line = load_config(None, [f"select.{name}={json.dumps(value)}" for name, value in given.items()])
    ways = {
        "form": change_settings(form(given), corpus={"input": ["x"]}),
        "parameters of a run": change_settings(form({}), corpus={"input": ["x"]}, select=given),
        "file": by_file,
        "command line": by_line,
        "curate(select=…)": _config(None, {"select": given}, "x", ()),
        "curate(config=file, select=…)": _config(path, {"select": given}, "x", ()),
        "a release's settings": Config.model_validate(by_line.model_dump(mode="json")),
    }
    assert {way: config.selection.facts() for way, config in ways.items()} == dict.fromkeys(ways, wanted)
    if "target" in given:
        given = {**given, "target": [" ".join(WORDS)]}  # in Python these are texts
    found = select(FEATURES, QUALITY, texts=TEXTS, tokens=TOKENS, **given).facts()
    assert {name: found[name] for name in wanted} == wanted


def test_a_target_given_as_texts_counts_as_a_target():
    found = select(FEATURES, QUALITY, texts=TEXTS, target=[" ".join(WORDS)])
    assert found.facts()["lamb"] == 0.3 and found.facts()["parts"] == TARGET_PARTS


def test_arrays_without_token_counts_are_counted_in_documents_and_without_texts_by_the_published_metric():
    found = select(FEATURES, QUALITY).facts()
    assert (found["algorithm"], found["lamb"], found["select_ratio"], found["selected"]) == ("Pair_simi", 0.5, 0.1, 5)


def test_a_default_budget_is_a_tenth_of_the_tokens():
    found = select(FEATURES, QUALITY, tokens=TOKENS)
    assert 0.05 * TOKENS.sum() < TOKENS[found.selected].sum() <= 0.1 * TOKENS.sum() + 0.5


def test_what_was_not_given_stays_open():
    assert Config().select.lamb is None and Config().select.algorithm is None
    resolved = Config().selection
    assert resolve(resolved) is resolved
    with pytest.raises(Exception, match="frozen"):
        resolved.lamb = 0.1


def test_a_budget_laid_over_settings_replaces_theirs():
    base = {"select": {"budget_tokens": 1000}}
    assert load_config(None, ["select.select_ratio=0.2"], base).selection.facts()["select_ratio"] == 0.2
    laid = change_settings(Config.model_validate(base), select={"token_ratio": 0.3})
    assert laid.selection.facts()["token_ratio"] == 0.3


@pytest.mark.parametrize("name", extensions.BUILT_IN["solver"])
def test_solvers_that_count_documents_are_those_that_say_so(name):
    assert ("tokens" not in solver_class(name).holds) == (name in COUNT_DOCUMENTS)
