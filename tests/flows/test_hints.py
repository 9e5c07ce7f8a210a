"""What a deployment's reader is told to type is what `prefect deployment run` takes, no option of the command line."""

import json
import shlex
from types import SimpleNamespace
from uuid import UUID

import pytest

from datamask.corpus.inputs import find_inputs
from datamask.errors import ConfigError, InputError
from flows import artifacts
from flows.artifacts import artifact_key
from flows.hints import for_a_deployment, split_paths

GIVEN = {"output": "out/mine", "input": "dumps/*.parquet", "lamb": None, "allow_loss": False, "config": {}}


def typed(message):
    """The parameters that the message's last line would start a run with."""
    line = message.splitlines()[-1]
    assert line.startswith("Type: prefect deployment run ")
    words = shlex.split(line.removeprefix("Type: "))
    assert words[:4] == ["prefect", "deployment", "run", "refresh/refresh"] and set(words[4::2]) == {"-p"}
    return dict(word.split("=", 1) for word in words[5::2])


@pytest.mark.parametrize("option", ["allow-loss", "allow-failed-shards"])
def test_an_option_is_a_parameter(option):
    told = for_a_deployment(f"nothing is published; publish without them: --{option}", "refresh/refresh", GIVEN)
    assert f"--{option}" not in told
    given = {"output": "out/mine", "input": "dumps/*.parquet", option.replace("-", "_"): "true"}
    assert typed(told) == given


def test_a_setting_is_laid_over_the_runs_configuration():
    given = {**GIVEN, "config": {"run": {"workers": 2}, "select": {"lamb": 0.5}}}
    told = for_a_deployment("the disk is full; try all the same: --set run.room=off", "refresh/refresh", given)
    assert "--set" not in told
    assert json.loads(typed(told)["config"]) == {"run": {"workers": 2, "room": "off"}, "select": {"lamb": 0.5}}


def test_a_setting_whose_value_the_reader_must_fill_in_is_shown_and_not_typed():
    told = for_a_deployment("no text; name it: --text-column NAME (--set corpus.columns.text=NAME)", "a/b", GIVEN)
    assert """-p 'config={"corpus": {"columns": {"text": "NAME"}}}'""" in told and "Type:" not in told


def test_where_no_input_is_given_its_parameter_is_named():
    with pytest.raises(InputError) as refused:
        find_inputs([])
    told = for_a_deployment(str(refused.value), "curate/curate", GIVEN)
    assert told == "no input; name files, folders or globs: -p input='dumps/*.parquet'"


def test_paths_of_a_parameter_are_split_as_a_shell_does():
    assert split_paths("a/*.parquet 'b c' \"it's\"", "input") == ["a/*.parquet", "b c", "it's"]
    for text in ("dumps/it's", "dumps\\"):
        with pytest.raises(ConfigError, match="input = .*: no .*; blanks separate paths, so put one with a blank"):
            split_paths(text, "input")


def test_a_message_without_options_stays():
    assert for_a_deployment("no such file", "refresh/refresh", GIVEN) == "no such file"


def test_an_outputs_artifacts_have_a_key_of_their_own():
    outs = ["out/mine", "out-mine", "out/Mine", "s3://bucket/out/mine", "/out/mine", "out/" + "long/" * 40, "ü"]
    keys = {artifact_key("curation", out) for out in outs}
    assert len(keys) == len(outs) - 1  # a leading slash alone tells nothing apart
    assert all(set(key) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") and len(key) < 90 for key in keys)
    assert artifact_key("curation", "out/mine") == "curation-out-mine"


def test_the_numbers_link_to_the_runs_other_artifacts(monkeypatch):
    """The UI lists artifacts by their random ids: whoever opens one finds the others from there."""
    made = {}

    def keep(text, key, description):
        made[key] = text
        return UUID(int=len(made))

    for name in ("create_markdown_artifact", "create_table_artifact"):
        monkeypatch.setattr(artifacts, name, keep)
    monkeypatch.setattr(artifacts, "url_for", lambda what, obj_id: f"http://ui/runs/{what}/{obj_id}")
    logged = []
    monkeypatch.setattr(artifacts, "get_run_logger", lambda: SimpleNamespace(info=lambda *said: logged.append(said)))
    shown = artifacts.RunArtifacts(artifacts.Board(), "out")
    shown.show_warnings(["one"])
    shown.show_shards([{"shard": "a"}])
    shown.show_numbers("# 0001\n\nnumbers")
    link = "http://ui/artifacts/artifact"
    warnings, shards, numbers = (f"{link}/{UUID(int=number)}" for number in (1, 2, 3))
    first, _, links, *rest = made["curation-out"].split("\n")
    assert (first, links) == ("# 0001", f"Look also at: [warnings]({warnings}), [shards]({shards})")
    assert rest[-1] == "numbers" and logged[0][-1] == numbers
