"""The commands as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from datamask.cli import main
from datamask.release.release_folder import Staged
from datamask.report.report import write_report
from tests.report.build import corpus
from tests.report.test_report import draft


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output folder with one release that has a report."""
    folder = tmp_path_factory.mktemp("out")
    all_files, config, certificate = corpus(folder)
    release = folder / "releases" / "0001-0123456789abcdef"
    staged = Staged(str(release), str(folder), "key")
    draft(staged)
    write_report(staged, all_files, config, certificate)
    (release / "manifest.json").write_text('{"key": "0123456789abcdef"}')
    return folder


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        main([str(argument) for argument in arguments])
    return int(exit_.value.code or 0)


def test_report_prints_tables_and_the_path(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("report", out) == 0
    text = capsys.readouterr().out
    assert "500 documents were selected" in text and "Vendi score" in text
    assert str(out / "releases" / "0001-0123456789abcdef" / "report.html") in text


def test_report_builds_the_page_again(out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("report", out, "--to", tmp_path / "again", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    first = out / "releases" / "0001-0123456789abcdef" / "report.html"
    assert Path(found["page"]).read_bytes() == first.read_bytes()
    assert found["read"] == 500


def test_report_of_nothing_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("report", tmp_path / "nowhere") == 3
    assert capsys.readouterr().err.startswith("datamask: no release at")


def test_sweep_picks_and_writes(out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = tmp_path / "my.yaml"
    settings.write_text("select:\n  lamb: 0.5  # ours\n")
    place = tmp_path / "sweep"
    assert run("sweep", out, "--points", "3", "--pick", "knee", "--config", settings, "--to", place, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [point["lamb"] for point in found["points"]] == [0, 0.5, 1]
    assert settings.read_text() == f"select:\n  lamb: {found['picked']:g}  # ours\n".replace("lamb: 1 ", "lamb: 1.0 ")
    assert {path.name for path in place.iterdir()} == {"sweep.html", "sweep.json", "front.png"}


def test_what_a_metric_of_ones_own_prints_is_no_part_of_the_object(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "from datamask.selection.metrics.moments import Pairwise\n\nprint('looking')\n\nclass Loud(Pairwise): pass\n"
    (metric := tmp_path / "loud.py").write_text(code)
    own = f"select.algorithm={metric}:Loud"
    assert run("sweep", out, "--points", "2", "--to", tmp_path, "--json", "--set", own) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["points"] and "looking" in told.err


def test_sweep_prints_a_row_a_lambda(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("sweep", out, "--points", "2", "--set", "select.lamb=0.25") == 0
    captured = capsys.readouterr()
    assert "0.25" in captured.out and "knee" in captured.out and "λ 0.25" in captured.err


@pytest.mark.parametrize(
    "arguments,message",
    [
        (["--config", "x.yaml"], "say which: --pick"),
        (["--pick", "knee", "--config", "none.yaml"], "cannot read configuration none.yaml"),
        (["--set", "select.lam=1"], "unknown setting select.lam"),
        (["--set", "filter.min_tokens=9"], "only settings of `select` change anything"),
    ],
)
def test_sweep_refuses_before_it_works(
    out: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("sweep", out, *arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err and "s\n" not in captured.out


@pytest.mark.parametrize("command", [["sweep"], ["ablate"], ["judge", "--targets", "FILE"]])
def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    out: Path, tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (file := tmp_path / "file").write_text("words of a text\n" * 50)
    arguments = [str(file) if part == "FILE" else part for part in command[1:]]
    assert run(command[0], out, *arguments, "--to", file) == 5
    captured = capsys.readouterr()
    assert f"cannot write {file}/" in captured.err and "a file is where a folder is expected" in captured.err
    assert " s\n" not in captured.err.split("datamask: ")[0]  # nothing was solved or read


def test_ablate_prints_its_tables(out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["ablate", out, "--seeds", "1", "--only", "random", "--only", "direct", "--to", tmp_path]
    assert run(*arguments) == 0
    assert "What nobody optimised" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"ablation.html", "ablation.json", "ablation.md"}
    assert run(*arguments, "--targets", tmp_path / "nowhere.jsonl") == 3
    assert "nowhere.jsonl matches no file" in capsys.readouterr().err
