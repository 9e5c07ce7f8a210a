"""The page's automation is one that a server takes, and hears what it is to tell."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"


@pytest.mark.slow
def test_the_automation_of_the_page_is_created(prefect_server):
    [code] = [
        block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if "SendNotification" in block
    ]
    exec(compile(code.replace("/services/…", "/services/T0/B0/x"), str(PAGE), "exec"), {})
    from prefect.automations import Automation
    from prefect.events.schemas.events import Resource

    found = Automation.read(name="datamask failures")
    assert found.enabled and found.actions[0].type == "send-notification"
    assert found.trigger.expect == {"prefect.flow-run.Failed", "prefect.flow-run.Crashed"}
    run = Resource({"prefect.resource.id": "prefect.flow-run.x", "prefect.resource.role": "flow-run"})
    assert found.trigger.match.matches(run)
    flow = Resource({"prefect.resource.id": "prefect.flow.x", "prefect.resource.role": "flow"})
    for name, heard in (("curate", True), ("refresh", True), ("other", False)):
        related = Resource({**flow.root, "prefect.resource.name": name})
        assert found.trigger.match_related.matches(related) == heard
    drift = Automation.read(name="datamask drift")
    assert drift.trigger.expect == {"datamask.drift"}
    assert drift.trigger.match.matches(Resource({"prefect.resource.id": "datamask.output.out/curated"}))
