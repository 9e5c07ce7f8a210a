"""deployments/prefect.yaml: what `make server` puts on a server does nothing on its own until told with what."""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

FILE = Path(__file__).parents[2] / "deployments" / "prefect.yaml"


def test_the_nightly_refresh_is_paused_until_its_input_is_named():
    deployments = YAML(typ="safe").load(FILE.read_text())["deployments"]
    [nightly] = [one for one in deployments if one["name"] == "refresh-nightly"]
    assert nightly["parameters"]["input"] == ""
    assert [schedule["active"] for schedule in nightly["schedules"]] == [False]
    assert [trigger["enabled"] for trigger in nightly["triggers"]] == [False]
    assert not any(one.get("schedules") for one in deployments if one is not nightly)


@pytest.mark.slow
def test_a_refresh_without_input_and_release_says_what_to_set(prefect_server, tmp_path):
    from datamask.errors import ConfigError
    from flows.refresh import refresh

    with pytest.raises(ConfigError, match="no input is given: set `input` of the deployment refresh/refresh-nightly"):
        refresh(output=str(tmp_path / "out"))
