"""Errors and logs for machines: under --json an error's fields end stderr; a JSON log is JSON alone."""

import json
import pickle
import sys

import pytest

from datamask import cli
from datamask.errors import InputError, MissingExtraError
from datamask.records import JsonLines, dumped, error_record, record


@pytest.mark.parametrize(
    ("arguments", "status", "fields"),
    [
        ("config --json --set select.lamb=7", 2, {"setting": "select.lamb"}),
        ("config --json --set select.solver=x", 2, {"setting": "select.solver", "valid": "relaxation"}),
        ("config --json --set select.lam=.5", 2, {"setting": "select.lam", "valid": "lamb"}),
        ("config --json --config no/where.yaml", 2, {"path": "no/where.yaml", "next": "datamask config"}),
        ("config --json --lamb 2", 2, {"setting": None, "path": None}),
        ("releases --json nowhere", 3, {"path": "nowhere", "next": "datamask curate --output nowhere"}),
        ("completion nonesuch --log-format json", 2, {}),
    ],
)
def test_an_error_under_json_is_its_fields_on_stderr(capsys, arguments, status, fields):
    with pytest.raises(SystemExit) as end:
        cli.main(arguments.split())
    out, err = capsys.readouterr()
    found = json.loads(err.splitlines()[-1])
    assert (end.value.code, out) == (status, "")
    assert (found["level"], found["status"]) == ("error", status) and found["message"]
    for name, value in fields.items():
        assert value in found[name] if name in ("valid", "next") else found[name] == value, found


def test_every_line_of_a_json_log_is_json(capsys):
    """Whoever writes it, in whatever pieces."""
    log = JsonLines(sys.stderr)
    print("datamask: a line", "of two pieces", file=log)
    log.write("a library's warning:\n\n  over lines\nleft")
    print(file=log)
    print(dumped(record("info", "whole", share=0.5)), file=log)
    found = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["message"] for line in found] == [
        "a line of two pieces", "a library's warning:", "over lines", "left", "whole"
    ]  # fmt: skip
    assert [line["level"] for line in found] == ["info", "warning", "info", "info", "info"]
    assert found[-1]["share"] == 0.5


def test_an_errors_own_fields_come_before_its_words_and_from_another_process_too():
    error = InputError("b.csv: no text column; valid: what", path="a/b.csv", valid=["body", "url"], next=["--x NAME"])
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.fields) == (str(error), error.fields)
    found = error_record(str(again), 3, again.fields)
    assert (found["path"], found["valid"], found["next"]) == ("a/b.csv", ["body", "url"], ["--x NAME"])
    missing = pickle.loads(pickle.dumps(MissingExtraError("web archives", "web")))
    assert missing.fields == {"next": ["pip install 'datamask[web]'"]}
