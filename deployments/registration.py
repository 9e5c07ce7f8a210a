"""What runs need on a Prefect server: a pool, limits, the automation for lost runs, and the deployments.

    PREFECT_API_URL=http://server:4200/api python deployments/registration.py      # safe to repeat

RUNS is how many runs the pool starts at a time, GPUS how many tasks may claim a GPU at a time: each 1 where it is new.
What was changed in the UI (active or paused, hours, parameters) stays so when deployments are made again, and so do
schedules that prefect.yaml does not have, or no more; those that are active are named. What changed there wins.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.automations import Automation
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import (
    DeploymentScheduleUpdate,
    DeploymentUpdate,
    WorkPoolCreate,
    WorkPoolUpdate,
)
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.exceptions import ObjectNotFound
from prefect.utilities.asyncutils import run_coro_as_sync
from prefect.variables import Variable
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

ROOT = Path(__file__).resolve().parents[1]
FILE = "deployments/prefect.yaml"
POOL = "datamask"
GPUS, RUNS = (int(os.environ.get(name) or 0) for name in ("GPUS", "RUNS"))  # 0: as it is, or 1 where there is none
WATCHED = ["curate", "refresh", "ablate", "forget"]  # flows
SILENCE = 90  # seconds without a heartbeat after which a run counts as lost
SAID = "datamask_switches"  # the variable that holds what prefect.yaml said of them when it was last deployed


def register() -> None:
    """Creates on the server what runs need, unless it is there, and the deployments, which are made anew."""
    listed = _schedules()
    _create()
    before, file_before = _settings(), json.loads(str(Variable.get(SAID, default=None) or "{}"))
    _prefect("--no-prompt", "deploy", "--all", "--prefect-file", FILE)
    after = _settings()
    said = {name: setting.digest for name, setting in after.items()}
    for name, setting in after.items():
        by_hand = before.get(name)
        if by_hand and file_before.get(name) == setting.digest != by_hand.digest:
            run_coro_as_sync(setting.put(by_hand.value))
            print(f"{name}: {by_hand}, as set in the UI")
        elif name.startswith("schedule ") and name not in listed and setting.value:
            print(f"{name} is active, and {FILE} has none of that slug; if it shall not run, delete it in the UI")
    Variable.set(SAID, json.dumps(said), overwrite=True)


def _schedules() -> set[str]:
    """The schedules in prefect.yaml, as `_settings` names them. Of a file that is no YAML Prefect says only that it has
    no entrypoint."""
    try:
        deployments = YAML(typ="safe").load((ROOT / FILE).read_text(encoding="utf-8"))["deployments"]
    except YAMLError as error:
        sys.exit(f"{FILE} is not valid YAML:\n{error}")
    return {
        f"schedule {each.get('slug')} of {one['name']}" for one in deployments for each in one.get("schedules") or ()
    }


@dataclass(frozen=True)
class Setting:
    """Something on the server that the UI can change: whether it is active, or its hours or parameters."""

    value: Any
    put: Callable[[Any], Coroutine[Any, Any, None]]

    def __str__(self) -> str:
        return {True: "active", False: "paused"}[self.value] if isinstance(self.value, bool) else str(self.value)

    @property
    def digest(self) -> bool | str:
        """Short, for a variable holds 5,000 characters."""
        if isinstance(self.value, bool):
            return self.value
        return hashlib.sha256(json.dumps(self.value, sort_keys=True).encode()).hexdigest()[:12]


def _settings() -> dict[str, Setting]:
    """Of every deployment of ours, its schedules and its triggers, by name. Schedules without a slug are given one,
    for Prefect would delete them."""

    async def read() -> dict[str, Setting]:
        found: dict[str, Setting] = {}
        async with get_client() as client:
            for deployment in await client.read_deployments():
                if "datamask" not in deployment.tags:
                    continue
                name = f"deployment {deployment.name}"
                found[name] = Setting(not deployment.paused, partial(_pause, deployment.id))
                put = partial(_change, deployment.id)
                found[f"parameters of {name}"] = Setting(deployment.parameters, put)
                for schedule in deployment.schedules:
                    if not schedule.slug:
                        schedule.slug = f"by-hand-{str(schedule.id)[:8]}"
                        await client.update_deployment_schedule(deployment.id, schedule.id, slug=schedule.slug)
                    name = f"schedule {schedule.slug} of {deployment.name}"
                    put = partial(_schedule, deployment.id, schedule.id)
                    found[name] = Setting(schedule.active, partial(put, "active"))
                    time = schedule.schedule.model_dump(mode="json")
                    found[f"time of {name}"] = Setting(time, partial(put, "schedule"))
            for automation in await client.read_automations():
                if automation.name.startswith("datamask"):
                    put = partial(_automation, automation.id)
                    found[f"automation {automation.name!r}"] = Setting(automation.enabled, put)
        return found

    return run_coro_as_sync(read()) or {}


async def _pause(deployment: UUID, on: bool) -> None:
    async with get_client() as client:
        await (client.resume_deployment if on else client.pause_deployment)(deployment)


async def _change(deployment: UUID, parameters: dict[str, Any]) -> None:
    async with get_client() as client:
        await client.update_deployment(deployment, DeploymentUpdate(parameters=parameters))


async def _schedule(deployment: UUID, schedule: UUID, name: str, value: Any) -> None:
    async with get_client() as client:
        update = DeploymentScheduleUpdate.model_validate({name: value})
        await client.update_deployment_schedule(deployment, schedule, **{name: getattr(update, name)})


async def _automation(automation: UUID, on: bool) -> None:
    async with get_client() as client:
        await (client.resume_automation if on else client.pause_automation)(automation)


def _create() -> None:
    with get_client(sync_client=True) as client:
        try:
            client.read_work_pool(POOL)
            if RUNS:
                client.update_work_pool(POOL, WorkPoolUpdate(concurrency_limit=RUNS))
        except ObjectNotFound:
            client.create_work_pool(
                WorkPoolCreate(
                    name=POOL, type="process", description="Runs flows on this machine", concurrency_limit=RUNS or 1
                )
            )
        try:
            there = client.read_concurrency_limit_by_tag("gpu").concurrency_limit
        except ObjectNotFound:
            there = 0
        if not there or GPUS not in (0, there):
            client.create_concurrency_limit(tag="gpu", concurrency_limit=GPUS or 1)  # replaces one that is there
    Variable.set("datamask_home", str(ROOT), overwrite=True)
    automation = lost_runs()
    known = _automations().get(automation.name)
    if not known:
        automation.create()
    elif known.description != automation.description:  # an update forgets which runs it waits for, so only if need be
        automation.id = known.id
        automation.update()


def lost_runs() -> Automation:
    """Crashes a run whose process went silent, so that none stays in Running for ever (Prefect's zombie detection).

    It counts from Running on, for a process may die before its first heartbeat, and for our flows alone, which beat
    every 30 s wherever they run (flows/ended.py).
    """
    ends = {f"prefect.flow-run.{state}" for state in ("Completed", "Failed", "Cancelled", "Crashed")}
    return Automation(
        name="datamask lost runs",
        description=f"A run of {', '.join(WATCHED)} without a heartbeat for {SILENCE} s is marked as crashed; run it "
        "again to go on.",  # says all that may change here: by it `_create` knows an older one
        trigger=EventTrigger(
            after={"prefect.flow-run.Running", "prefect.flow-run.heartbeat"},
            expect={"prefect.flow-run.heartbeat", *ends},
            match=ResourceSpecification({"prefect.resource.id": ["prefect.flow-run.*"]}),
            match_related=ResourceSpecification({"prefect.resource.role": ["flow"], "prefect.resource.name": WATCHED}),
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=SILENCE),
        ),
        actions=[
            ChangeFlowRunState(
                state=StateType.CRASHED, message=f"no heartbeat for {SILENCE} s: its process or machine is gone"
            )
        ],
    )


def _prefect(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "prefect", *arguments], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"prefect {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")


def _automations() -> dict[str, Automation]:
    async def read() -> dict[str, Automation]:
        async with get_client() as client:
            return {automation.name: automation for automation in await client.read_automations()}

    return run_coro_as_sync(read()) or {}


if __name__ == "__main__":
    register()
