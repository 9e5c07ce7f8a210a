"""What an addition is worth: every row counted, copies nothing, the release's folder untouched, the same twice."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask.cli import main
from datamask.config import load_config
from datamask.errors import ConfigError, InputError
from datamask.filter import forgotten
from datamask.run import curate
from datamask.study.run import Settings
from datamask.study.worth import JudgedWorth, JudgeSays, Worth, find_worth, lead, write_worth
from tests.flows.conftest import SMALL, documents, write_shard
from tests.release.made import digests

BUDGET = "select.token_ratio=0.3"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output folder, with its corpus of two shards beside it."""
    folder = tmp_path_factory.mktemp("worth")
    for number in range(2):
        write_shard(folder / "corpus", number, count=90)
    settings = [f"corpus.input=[{folder / 'corpus'}]", *(one for one in SMALL if "ratio" not in one), BUDGET]
    curate(load_config(overrides=settings), str(folder / "out"))
    return folder / "out"


@pytest.fixture(scope="module")
def added(out: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shard of other documents, by name the same as one of the corpus."""
    return write_shard(tmp_path_factory.mktemp("new"), 1, count=90, seed=9)


@pytest.fixture(scope="module")
def found(out: Path, added: Path) -> Worth:
    return find_worth([str(added)], str(out))


def test_every_row_is_new_or_has_a_reason_why_not(found: Worth, added: Path) -> None:
    texts = pq.read_table(added)["text"].to_pylist()
    assert found.rows == len(texts) == found.added + sum(found.lost.values())
    assert found.lost["quarantine: empty_text"] == texts.count("")
    assert found.lost["exact_duplicate"] == len(texts) - texts.count("") - len(set(texts) - {""})
    for groups in found.groups.values():
        assert sum(group.documents for group in groups) == found.added
        assert sum(group.tokens for group in groups) == found.added_tokens
        assert sum(group.chosen for group in groups) == found.taken
        assert sum(group.share for group in groups) == pytest.approx(found.taken_share)
    assert set(found.groups) == {"topic", "language"} and 0 < found.taken_share < 1


def test_a_choice_from_both_is_no_worse_than_the_release(found: Worth) -> None:
    assert found.gain is not None and found.gain > 0 and found.says == "worth adding"


def test_a_copy_of_what_is_there_is_worth_nothing(out: Path, tmp_path: Path) -> None:
    rows = pq.read_table(out.parent / "corpus").to_pylist()
    pq.write_table(pa.Table.from_pylist(rows[20:70]), tmp_path / "again.parquet")
    found = find_worth([str(tmp_path / "again.parquet")], str(out))
    assert found.added == 0 == found.taken and found.says == "not worth adding"
    assert found.gain == pytest.approx(0, abs=1e-9)  # both choices are made from the same documents


def test_what_must_be_forgotten_is_not_new(out: Path, added: Path, tmp_path: Path, found: Worth) -> None:
    copytree(out, tmp_path / "out")
    urls = [url for url in pq.read_table(added)["url"].to_pylist() if url][:30]
    assert not forgotten.record_entries(
        str(tmp_path / "out"), [forgotten.Entry("urls", url, "list", 1) for url in urls]
    )
    less = find_worth([str(added)], str(tmp_path / "out"))
    assert less.lost["forgotten"] > 0 and less.rows == less.added + sum(less.lost.values()) and less.added < found.added


def test_the_releases_folder_stays_as_it_is(out: Path, added: Path, tmp_path: Path, found: Worth) -> None:
    before = digests(out)
    assert find_worth([str(added)], str(out), work=str(tmp_path)) == found
    assert digests(out) == before
    kept = digests(tmp_path)
    assert find_worth([str(added)], str(out), work=str(tmp_path)) == found  # from what is there
    assert digests(tmp_path).keys() == kept.keys()


@pytest.fixture(scope="module")
def quiz(tmp_path_factory: pytest.TempPathFactory) -> str:
    rows = [
        {"question": row["text"][:200], "answer": row["text"][200:260]} for row in documents(9000, 40) if row["text"]
    ]
    (path := tmp_path_factory.mktemp("targets") / "quiz.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return str(path)


CONTROLS = {"A/A", "words shuffled", "planted junk"}


@pytest.mark.slow
def test_judges_say_what_the_new_changes(out: Path, added: Path, quiz: str, tmp_path: Path, capsys) -> None:
    arguments = ["worth", str(added), "--against", str(out), "--targets", quiz]
    with pytest.raises(SystemExit) as end:
        main([*arguments, "--json", "--to", str(tmp_path / "to")])
    assert not end.value.code
    told = json.loads(capsys.readouterr().out)
    judged = {judge["judge"]: judge for judge in told["judged"]["judges"]}
    assert judged.keys() == {"coder", "n-grams"} and judged["coder"]["targets"].keys() == {"quiz"}
    assert set(judged["coder"]["controls"]) == CONTROLS
    assert (tmp_path / "to" / "worth.md").read_text().startswith("# Worth\n\n" + told["says"])

    texts = [text for text in pq.read_table(added)["text"].to_pylist() if text]
    pq.write_table(pa.table({"text": ["".join(sorted(text)) for text in texts]}), tmp_path / "sorted.parquet")
    sorted_ = find_worth([str(tmp_path / "sorted.parquet")], str(out), [quiz])
    assert sorted_.judged and sorted_.judged.judges[0].difference > judged["coder"]["difference"]


@pytest.mark.slow
def test_the_network_says_it_too(out: Path, added: Path, quiz: str) -> None:
    [heard] = find_worth([str(added)], str(out), [quiz], Settings(judges=("network",))).judged.judges
    assert heard.judge == "network, tiny" and heard.controls.keys() == CONTROLS


def test_what_cannot_be_asked_is_told(out: Path, added: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no release at"):
        find_worth([str(added)], str(tmp_path))
    with pytest.raises(ConfigError, match="unknown|valid"):
        find_worth([str(added)], str(out), [str(added)], Settings(judges=("oracle",)))
    with pytest.raises(ConfigError, match="--draws 3: at least 8"):  # without targets nobody judges, but it was asked
        find_worth([str(added)], str(out), judging=Settings(draws=3))
    (bad := tmp_path / "bad.jsonl").write_text('{"text": ')
    with pytest.raises(InputError, match="line 1 is not JSON"):  # before what is new is read
        find_worth([str(tmp_path / "nowhere")], str(out), [str(bad)])


@pytest.mark.parametrize(
    "says, taken, expected",
    [
        ("better", 0.2, "worth adding"),
        ("worse", 0.2, "not worth adding"),
        ("not told apart", 0.2, "not told apart"),
        ("better", 0.01, "worth adding"),  # the choice leaves it, but targets gain
        ("not told apart", 0.01, "not worth adding"),
    ],
)
def test_what_is_said_follows_the_judges_and_the_choice(
    found: Worth, tmp_path: Path, says: str, taken: float, expected: str
) -> None:
    passed = dict.fromkeys(CONTROLS, True)
    judge = JudgeSays("coder", 0.0, 0.1, says, passed, {"quiz": 0.0})
    failed = JudgeSays("n-grams", 0.0, 0.1, "worse", passed | {"A/A": False}, {"quiz": 0.0})
    from dataclasses import replace

    told = replace(found, judged=JudgedWorth(1000, 200, (judge, failed)), pool_share=0.1, taken_share=taken)
    assert told.says == expected and told.as_json()["says"] == expected
    assert lead(told).startswith(expected) and "| coder |" in Path(write_worth(str(tmp_path), told)["page"]).read_text()
