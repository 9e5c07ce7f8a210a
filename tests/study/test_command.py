"""`datamask judge` as a user runs it, on a small corpus; what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from datamask.cli import main
from datamask.stages import record
from tests.report.build import corpus
from tests.study.test_verdict import documents


def build(folder: Path) -> Path:
    """An output folder whose documents are long enough to be read."""
    all_files, config, _ = corpus(folder)
    for number, path in enumerate(sorted(folder.glob("part-*.parquet"))):
        table = pq.read_table(path)
        texts = [text.decode() for text in documents(number, table.num_rows)]
        pq.write_table(table.set_column(0, "text", [texts]), path, row_group_size=64)
    record(str(folder / "work"), all_files, config)
    return folder


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("out"))


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("targets") / "quiz.jsonl"
    asked = [text.decode() for text in documents(99, 30, 1)]
    rows = [{"question": f"Which is number {n}?", "answer": text} for n, text in enumerate(asked)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as exit_:
        main([str(argument) for argument in arguments])
    return int(exit_.value.code or 0)


QUICK = ("--pools", "2", "--bytes", "8000")


@pytest.mark.slow
def test_it_says_no_verdict_with_one_kind_of_judge_and_writes_its_page(out, target, tmp_path, capsys):
    arguments = ["judge", out, "--targets", target, *QUICK, "--arm", "λ 0.9=lamb=0.9", "--to", tmp_path]
    assert run(*arguments) == 0
    text = capsys.readouterr().out
    assert "default against random: no verdict" in text and "λ 0.9" in text and "8,000 bytes of each choice" in text
    assert "So few pools as 2 give wide intervals" in text
    assert {path.name for path in tmp_path.iterdir()} == {"judge.html", "judge.json", "judge.md"}
    found = json.loads((tmp_path / "judge.json").read_text())
    assert [judge["name"] for judge in found["judges"]] == ["coder", "n-grams"]
    assert set(found["judges"][0]["means"]) == {"random", "default", "top-quality", "semdedup", "λ 0.9"}
    assert [c["first"] + " − " + c["second"] for c in found["judges"][0]["named"]] == [
        "default − random", "default − top-quality", "default − semdedup"
    ]  # fmt: skip
    assert found["facts"]["targets"][-1]["own"] and np.isfinite(list(found["judges"][0]["own"].values())).all()
    page = (tmp_path / "judge.html").read_text(encoding="utf-8")
    assert "Every arm against a random choice" in page and "vegaEmbed" in page


@pytest.mark.slow
def test_arms_of_coverage_are_given_the_texts_and_a_target_without_what_the_judge_reads(
    out, target, tmp_path, capsys, monkeypatch
):
    from datamask.study import embedded

    given = []
    select = embedded.select

    def watched(*arguments, **keywords):
        given.append(keywords)
        return select(*arguments, **keywords)

    monkeypatch.setattr(embedded, "select", watched)
    asked = [json.loads(line) for line in target.read_text().splitlines()]
    judged = tmp_path / "judged.jsonl"
    judged.write_text("\n".join(map(json.dumps, asked[::2])))
    arms = [
        "--arm", "words=algorithm=coverage,lamb=0.3,coverage={anchors: 50, atoms: {ngrams: 1, embedding: 1}}",
        "--arm", f"aimed=algorithm=coverage,target=[{target}]",
    ]  # fmt: skip
    assert run("judge", out, "--targets", judged, "--pools", "1", "--bytes", "8000", *arms, "--to", tmp_path) == 0
    found = json.loads((tmp_path / "judge.json").read_text())
    assert "So few pools" not in capsys.readouterr().out
    assert {"words", "aimed"} <= set(found["judges"][0]["means"])
    words, aimed = (
        next(k for k in given if k["settings"].metric == m)
        for m in ("coverage-ngrams+coverage-embedding", "coverage-target")
    )
    assert len(words["texts"]) == len(aimed["texts"]) and "target" not in words
    assert aimed["target"] == [f"{row['question']} {row['answer']}" for row in asked[1::2]]


def test_a_choice_may_not_be_told_all_that_it_is_judged_by(out, target, capsys):
    assert run("judge", out, "--targets", target, *QUICK, "--arm", f"x=algorithm=coverage,target=[{target}]") == 3
    assert "the judge reads every item of select.target" in capsys.readouterr().err


@pytest.mark.slow
def test_the_network_is_asked_for_by_name_and_the_same_twice(out, target, tmp_path, capsys, monkeypatch):
    from datamask.study import network
    from datamask.study import run as module

    shape = network.ProxySettings(vocabulary=300, width=16, layers=1, heads=2, context=32, batch=4)
    monkeypatch.setitem(network.SIZES, "tiny", network.Size("tiny", shape, passes=0.3, before=9000))
    given, texts_of = [], module.texts_of
    monkeypatch.setattr(module, "texts_of", lambda corpus: given.append(texts_of(corpus)) or given[-1])
    pools: list[set[bytes]] = []
    hear, starts = module.read_choices, []

    def watched(judge, read_pools, *rest):
        pools.extend(set(texts) for texts, _ in read_pools)
        starts.append(judge._before)
        return hear(judge, read_pools, *rest)

    monkeypatch.setattr(module, "read_choices", watched)
    arguments = ["judge", out, "--targets", target, "--pools", "1", "--bytes", "6000", "--judge", "network"]
    told = []
    for _ in range(2):
        assert run(*arguments, "--size", "tiny", "--to", tmp_path, "--json") == 0
        told.append(json.loads(capsys.readouterr().out)["judges"][0])
    assert told[0]["kind"] == "network" and told[0]["means"] == told[1]["means"]
    assert "after 9,000 bytes of other text; best rates" in told[0]["notes"]
    assert told[0]["reach"]["bytes"] == 6000 and told[0]["reach"]["epochs"] == 0.3
    assert told[0]["reach"]["parameters"] > 1000
    assert sum(map(len, starts[0])) >= 9000 and not any(set(starts[0]) & pool for pool in pools)  # in no arm's reach


@pytest.mark.parametrize(
    "arguments,message",
    [
        ([], "no targets; name texts from outside the pool"),
        (["--targets", "nowhere.jsonl"], "nowhere.jsonl matches no file"),
        (["--targets", "T", "--bytes", "90000000"], "ask for at most"),
        (["--targets", "T", "--judge", "oracle"], "--judge oracle: valid are coder, n-grams, network"),
        (["--targets", "T", "--judge", "network", "--size", "huge"], "--size huge: valid are tiny, small, large"),
        (["--targets", "T", "--draws", "3"], "--draws 3: at least 8"),
        (["--targets", "T", "--arm", "x"], "write NAME=setting=value"),
        (["--targets", "T", "--arm", "x=lamb="], "write NAME=setting=value"),
        (["--targets", "T", "--arm", "x=lam=1"], "no setting 'lam'"),
        (["--targets", "T", "--arm", "x=lamb=7"], "less than or equal to 1"),
        (["--targets", "T", "--arm", "x=seed=1,lamb=7"], "lamb: Input should be less than or equal to 1"),
        (["--targets", "T", "--seed", "-1"], "greater than or equal to 0"),
        (["--targets", "."], "a file is expected there"),
        (["--targets", "T", "--arm", "random=lamb=1"], "there is an arm 'random' already"),
    ],
)
def test_refusals(out, target, arguments, message, capsys):
    assert run("judge", out, *(target if part == "T" else part for part in arguments)) in (2, 3, 5)
    assert message in capsys.readouterr().err


def test_too_many_bytes_are_refused_before_anything_is_chosen(out, target, capsys, monkeypatch):
    from datamask.study import run as module

    monkeypatch.setattr(module, "choose_documents", None)  # it would fail if it were called
    assert run("judge", out, "--targets", target, "--bytes", "90000000") == 3
    assert "more than any choice within the budget of default can hold" in capsys.readouterr().err


def test_a_device_of_the_network_that_is_not_there_is_refused_before_anything_is_chosen(
    out, target, capsys, monkeypatch
):
    from datamask.study import run as module

    monkeypatch.setattr(module, "choose_documents", None)  # it would fail if it were called
    assert run("judge", out, "--targets", target, "--judge", "network", "--device", "tpu") == 2
    assert "unknown device 'tpu'; valid: auto, cpu, cuda" in capsys.readouterr().err


def test_a_target_that_stands_in_the_pool_is_found_and_named(out, tmp_path, capsys):
    texts = pq.read_table(out / "part-0.parquet")["text"].to_pylist()[100:112]
    path = tmp_path / "leak.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    assert run("judge", out, "--targets", path, *QUICK) == 3
    assert "target leak stands in the pool: " in capsys.readouterr().err


def test_an_empty_target_and_a_folder_that_is_no_corpus(out, target, tmp_path, capsys):
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    assert run("judge", out, "--targets", empty) == 3
    assert "empty.jsonl is empty" in capsys.readouterr().err
    assert run("judge", tmp_path, "--targets", target) != 0
    assert capsys.readouterr().err.startswith("datamask: ")
