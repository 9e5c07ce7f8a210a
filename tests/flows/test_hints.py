"""What a deployment's reader is told to type is what `prefect deployment run` takes, no option of the command line."""

import json
import shlex

import pytest

from flows.artifacts import artifact_key
from flows.hints import for_a_deployment

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


def test_a_message_without_options_stays():
    assert for_a_deployment("no such file", "refresh/refresh", GIVEN) == "no such file"


def test_an_outputs_artifacts_have_a_key_of_their_own():
    outs = ["out/mine", "out-mine", "out/Mine", "s3://bucket/out/mine", "/out/mine", "out/" + "long/" * 40, "ü"]
    keys = {artifact_key("curation", out) for out in outs}
    assert len(keys) == len(outs) - 1  # a leading slash alone tells nothing apart
    assert all(set(key) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") and len(key) < 90 for key in keys)
    assert artifact_key("curation", "out/mine") == "curation-out-mine"
