"""What runs need on a Prefect server: a pool, limits, the automation for lost runs, and the deployments.

    PREFECT_API_URL=http://server:4200/api python deployments/registration.py      # safe to repeat

RUNS is how many runs the pool starts at a time (1 where it is new), GPUS how many tasks may claim a GPU at a time (1).
What was paused, or set active, in the UI stays so when deployments are made again; what changed in prefect.yaml wins.
Prefect keeps a schedule that prefect.yaml has no more, or under another slug; one that is active is named.
"""

from __future__ import annotations

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
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
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
GPUS = int(os.environ.get("GPUS") or 1)
RUNS = int(os.environ.get("RUNS") or 0)  # 0: as it is, or 1 for a new pool
SILENCE = 90  # seconds without a heartbeat after which a run counts as lost
SWITCHES = "datamask_switches"  # the variable that holds what prefect.yaml said of them when it was last deployed


def register() -> None:
    """Creates on the server what runs need, unless it is there, and the deployments, which are made anew."""
    listed = _schedules()
    _create()
    before, file_before = _switches(), json.loads(str(Variable.get(SWITCHES, default=None) or "{}"))
    _prefect("--no-prompt", "deploy", "--all", "--prefect-file", FILE)
    said = {name: switch.on for name, switch in _switches().items()}
    for name, switch in _switches().items():
        by_hand = before.get(name)
        if by_hand and file_before.get(name) == switch.on != by_hand.on:
            run_coro_as_sync(switch.turn(by_hand.on))
            print(f"{name} stays {'active' if by_hand.on else 'paused'}, as it was set in the UI")
        elif name.startswith("schedule ") and name not in listed and switch.on:
            print(f"{name} is active, and {FILE} has none of that slug; if it shall not run, delete it in the UI")
    Variable.set(SWITCHES, json.dumps(said), overwrite=True)


def _schedules() -> set[str]:
    """The schedules in prefect.yaml, as `_switches` names them. Of a file that is no YAML Prefect says only that it has
    no entrypoint."""
    try:
        deployments = YAML(typ="safe").load((ROOT / FILE).read_text(encoding="utf-8"))["deployments"]
    except YAMLError as error:
        sys.exit(f"{FILE} is not valid YAML:\n{error}")
    return {
        f"schedule {each.get('slug')} of {one['name']}" for one in deployments for each in one.get("schedules") or ()
    }


@dataclass(frozen=True)
class Switch:
    """Something on the server that may be active or paused."""

    on: bool
    turn: Callable[[bool], Coroutine[Any, Any, None]]


def _switches() -> dict[str, Switch]:
    """Every deployment of ours, its schedules and its triggers, by name."""

    async def read() -> dict[str, Switch]:
        found: dict[str, Switch] = {}
        async with get_client() as client:
            for deployment in await client.read_deployments():
                if "datamask" not in deployment.tags:
                    continue
                found[f"deployment {deployment.name}"] = Switch(not deployment.paused, partial(_pause, deployment.id))
                for schedule in deployment.schedules:
                    name = f"schedule {schedule.slug or schedule.id} of {deployment.name}"
                    found[name] = Switch(schedule.active, partial(_schedule, deployment.id, schedule.id))
            for automation in await client.read_automations():
                if automation.name.startswith("datamask"):
                    found[f"automation {automation.name!r}"] = Switch(
                        automation.enabled, partial(_automation, automation.id)
                    )
        return found

    return run_coro_as_sync(read()) or {}


async def _pause(deployment: UUID, on: bool) -> None:
    async with get_client() as client:
        await (client.resume_deployment if on else client.pause_deployment)(deployment)


async def _schedule(deployment: UUID, schedule: UUID, on: bool) -> None:
    async with get_client() as client:
        await client.update_deployment_schedule(deployment, schedule, active=on)


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
        client.create_concurrency_limit(tag="gpu", concurrency_limit=GPUS)  # replaces one that is there
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

    It counts from Running on, for a process may die before its first heartbeat, and for our flows alone: others may
    have no heartbeat.
    """
    ends = {f"prefect.flow-run.{state}" for state in ("Completed", "Failed", "Cancelled", "Crashed")}
    return Automation(
        name="datamask lost runs",
        description=f"A run of ours without a heartbeat for {SILENCE} s is marked as crashed; run it again to go on.",
        trigger=EventTrigger(
            after={"prefect.flow-run.Running", "prefect.flow-run.heartbeat"},
            expect={"prefect.flow-run.heartbeat", *ends},
            match=ResourceSpecification({"prefect.resource.id": ["prefect.flow-run.*"]}),
            match_related=ResourceSpecification(
                {"prefect.resource.role": ["flow"], "prefect.resource.name": ["curate", "refresh", "ablate"]}
            ),
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
