"""What a deployment's reader is told to type, and how its parameters and artifacts are named."""

from types import SimpleNamespace
from uuid import UUID

import pytest

from datamask.errors import ConfigError, InputError
from flows import artifacts, hints
from flows.artifacts import artifact_key
from flows.hints import split_paths


@pytest.mark.parametrize("id_", [None, "an id"])
def test_a_message_that_names_an_option_says_what_it_is_of_a_deployment(monkeypatch, id_):
    monkeypatch.setattr(hints, "deployment", SimpleNamespace(id=id_))
    for said in ("publish without them: --allow-loss", "no such file"):
        with pytest.raises(InputError) as told, hints.for_this_reader():
            raise InputError(said, path="a")
        assert str(told.value) == (f"{said}\n{hints.HERE}" if id_ and "--" in said else said)
        assert told.value.path == "a"


def test_paths_of_a_parameter_are_split_as_a_shell_does():
    assert split_paths("a/*.parquet 'b c' \"it's\"", "input") == ["a/*.parquet", "b c", "it's"]
    for text in ("dumps/it's", "dumps\\"):
        with pytest.raises(ConfigError, match="input = .*: no .*; blanks separate paths, so put one with a blank"):
            split_paths(text, "input")


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
