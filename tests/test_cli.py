import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from datamask import cli
from datamask.config import load_config
from datamask.errors import ConfigError, InputError, StorageError


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as exit_:
        cli.main(list(arguments))
    captured = capsys.readouterr()
    return exit_.value.code or 0, captured.out, captured.err


def test_help_lists_every_command_and_imports_nothing_heavy():
    code = (
        "import sys; from datamask import cli\n"
        "try: cli.main(['--help'])\n"
        "finally: assert not {'torch', 'prefect', 'duckdb', 'pyarrow'} & set(sys.modules), sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(f"  {name} " in done.stdout for name in cli.COMMANDS)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_describes_itself(capsys, name):
    status, out, err = call(capsys, name, "--help")
    if "No module named" in err or "no installed package" in err:
        pytest.skip(err)
    assert status == 0, err
    assert "Usage: datamask" in out


def test_unknown_command_names_the_nearest(capsys):
    status, _, err = call(capsys, "curat")
    assert status == 2
    assert "'curate'" in err


def test_config_prints_yaml_that_loads_again(capsys, tmp_path):
    status, out, _ = call(capsys, "config", "--set", "select.lamb=0.7")
    (tmp_path / "my.yaml").write_text(out)
    again = call(capsys, "config", "--config", str(tmp_path / "my.yaml"))
    assert (status, again[1]) == (0, out)
    assert "lamb: 0.7" in out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("select:\n  lamb: 0.3\n  lamb: 0.4\n", 'at line 3, column 3: found duplicate key "lamb"'),
        ("select:\n\tlamb: 0.3\n", "at line 2, column 1: found character that cannot start any token"),
    ],
)
def test_what_is_no_yaml_is_told_by_its_place(tmp_path, text, said):
    (path := tmp_path / "own.yaml").write_text(text)
    with pytest.raises(ConfigError) as told:
        load_config(path)
    assert f"{path}: not valid YAML {said}" in str(told.value)
    assert "http" not in str(told.value) and "<unicode string>" not in str(told.value)


def test_a_text_that_yaml_would_read_otherwise_is_told_with_its_quotes():
    with pytest.raises(ConfigError) as told:
        load_config(overrides=['filter.where="a b" = 1'])
    _, said = str(told.value).split("quotes of its own: --set ")
    assert load_config(overrides=shlex.split(said)).filter.where == '"a b" = 1'


def test_config_says_what_every_setting_means(capsys):
    lines = call(capsys, "config")[1].splitlines()
    named = [place for place, line in enumerate(lines) if re.match(r" *[a-z_]+:", line)]
    bare = [lines[place] for place in named if not lines[place - 1].lstrip().startswith("#")]
    assert len(named) > 80 and "    document_weights: quality" in lines
    assert all(line.startswith(" " * 4) for line in bare)  # of the list of scorers, whose entries are not commented
    assert not {"    atoms: {}", "    anchors: 1500"} & set(bare)


def test_inputs_may_be_given_without_their_option(monkeypatch, capsys, tmp_path):
    """`datamask curate data/*.parquet -o out`: the shell writes out the files, with --input before them or not."""
    from flows import commands

    monkeypatch.setattr(commands, "begin_server", lambda: None)
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n')
    for first in ([str(tmp_path / "a.jsonl")], ["--input", str(tmp_path / "a.jsonl")]):
        status, _, err = call(capsys, "curate", *first, str(tmp_path / "b.jsonl"), "-o", str(tmp_path / "out"))
        assert status and "b.jsonl" in err and "a.jsonl" not in err


@pytest.mark.parametrize("error", [InputError("no text column in a.parquet"), StorageError("no space")])
def test_an_expected_error_is_its_message_alone(monkeypatch, capsys, error):
    monkeypatch.setattr(cli, "app", lambda **_: (_ for _ in ()).throw(error))
    assert call(capsys, "config") == (error.exit_code, "", f"datamask: {error}\n")


def test_a_defect_is_one_line_that_says_where_the_trace_is(monkeypatch, capsys):
    monkeypatch.setattr(cli, "app", lambda **_: (_ for _ in ()).throw(ZeroDivisionError("one\ntwo")))
    status, _, err = call(capsys, "config")
    assert status == 70
    assert err.count("\n") == 1
    assert "ZeroDivisionError: one two" in err
    trace = Path(err.split("full trace: ")[1].strip())
    assert "Traceback" in trace.read_text(encoding="utf-8")
    trace.unlink()
    assert "Traceback" in call(capsys, "config", "--debug")[2]


# the command, whose line about its own silence a busy machine would bring
COMMAND = """
import runpy
from datamask import silence
silence.FIRST = 600.0
runpy.run_module("datamask.cli", run_name="__main__")
"""


def test_a_full_disk_is_one_line():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", COMMAND, "config"], stdout=full, stderr=-1, text=True)
    assert done.returncode == 5
    assert done.stderr.startswith("datamask: No space left on device")


def test_a_name_that_the_machines_encoding_lacks_is_told_as_such():
    c = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    asked = [sys.executable, "-c", COMMAND, "config", "--config", "ü.yaml"]
    done = subprocess.run(asked, env={**os.environ, **c}, capture_output=True, text=True)
    assert done.returncode == 5
    assert done.stderr.startswith("datamask: this machine's encoding is ascii, which lacks signs that are given; set ")


def test_ctrl_c_in_a_command_ends_in_one_line(capsys, monkeypatch):
    """Whatever typer makes of it on its way."""

    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("datamask.config.load_config", interrupted)
    status, out, err = call(capsys, "config")
    assert (status, out, err.strip()) == (130, "", cli.INTERRUPTED)


@pytest.mark.parametrize(("command", "status"), [(["config"], 0), (["completion", "bash"], 141)])
def test_a_reader_that_leaves_is_no_error(command, status):
    """But success only where the command does nothing but tell."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-c", COMMAND, *command], stdout=write, stderr=-1)
    os.close(write)
    assert (done.returncode, done.stderr) == (status, b"")


def test_a_working_directory_that_is_gone_is_one_line(tmp_path):
    code = (
        "import os, sys; os.mkdir('x'); os.chdir('x'); os.rmdir('../x'); from datamask import cli; cli.main(['config'])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 5 and done.stderr.startswith("datamask: the folder that this was started in is not there")
