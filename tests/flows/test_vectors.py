"""Where nothing reads vectors none are made, and everything that follows says so and works."""

import json
from pathlib import Path

import pytest

from datamask.checks import encoder_caution
from datamask.config import Config, validate
from datamask.study.embedded import load_corpus

WORDS_ALONE = ["--set", "select.coverage.atoms={ngrams: 1}"]


@pytest.mark.slow
def test_words_alone_are_chosen_without_vectors_and_refreshed(call, corpus, tmp_path):
    out = tmp_path / "out"
    status, printed, err = call("curate", "--input", corpus, "--output", out, "--json", *WORDS_ALONE)
    assert status == 0 and "no vectors are made: coverage-ngrams, the scorers and the filters read none" in err
    work = Path(out) / "work"
    assert not (work / "embeddings").exists() and not (work / "encoder").exists()
    found = json.loads(printed)
    report = (Path(found["release"]) / "report.html").read_text()
    assert "No vectors were made" in report and "Map of the documents" not in report
    status, printed, _ = call("curate", "--input", corpus, "--output", out, "--json", *WORDS_ALONE)
    assert status == 0 and json.loads(printed)["release"] == found["release"]
    with pytest.raises(Exception, match="reads vectors, and none were made"):
        load_corpus(str(out), 1000).require_vectors("semdedup")


@pytest.mark.parametrize(
    ("select", "more", "read"),
    [
        ({}, {}, True),
        ({"target": ["texts"]}, {}, False),
        ({"coverage": {"atoms": {"ngrams": 1}}}, {}, False),
        ({"coverage": {"atoms": {"ngrams": 1}}}, {"quality": {"scorers": [{"kind": "encoder"}]}}, True),
        ({"algorithm": "DiSF"}, {}, True),
        ({"target": ["texts"], "solver": "semdedup"}, {}, True),
    ],
)
def test_vectors_are_made_where_something_reads_them(select, more, read):
    assert validate({"select": select, **more}).reads_vectors is read
    assert Config().reads_vectors


def test_the_papers_diversity_on_static_vectors_is_told_what_it_reached():
    said = encoder_caution(validate({"select": {"algorithm": "Pair_simi"}}))
    assert said is not None and "not told apart" in said
    assert encoder_caution(Config()) is None and encoder_caution(validate({"select": {"solver": "random"}})) is None
    assert encoder_caution(validate({"select": {"algorithm": "Pair_simi"}, "encoder": {"model": "a/model"}})) is None
