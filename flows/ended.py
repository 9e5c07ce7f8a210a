"""What Prefect's UI shows of a flow run that was cancelled, or whose process was killed: its task runs end with it, and
its silence says that it is gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from threading import Event, Thread
from typing import Any

from prefect import Flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowFilter, FlowRunFilter, TaskRunFilter
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.events import emit_event
from prefect.runtime import flow_run as this_run
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY

BEAT = 30.0  # seconds; deployments/registration.py takes a run that is silent for three of them as lost


@contextmanager
def beating() -> Iterator[None]:
    """Inside, a run tells that it lives. Prefect's own heartbeat comes every 180 s, unless whoever starts the process
    (a worker, `serve`, a user's own flow) has set it otherwise; where it is off, nobody listens."""
    resource, over = {"prefect.resource.id": f"prefect.flow-run.{this_run.id}"}, Event()

    def beat() -> None:
        while not over.wait(BEAT):
            emit_event("prefect.flow-run.heartbeat", resource=resource)

    if PREFECT_FLOWS_HEARTBEAT_FREQUENCY.value():
        Thread(target=copy_context().run, args=(beat,), name="heartbeat", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def end_task_runs(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """A hook of flows, which their worker calls: nobody else can tell the end of the tasks that were under way."""
    kind = StateType.CRASHED if state.type == StateType.CRASHED else StateType.CANCELLED
    _end(flow, {"id": {"any_": [flow_run.id]}}, kind, "it ended with its flow run")


def end_lost_task_runs(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """A hook of flows that begin: a worker that was lost with its machine has not told the end of its tasks, neither of
    an earlier try of this run nor of other runs of the flow, which the server's automation marked as crashed."""
    runs = {"operator": "or_", "id": {"any_": [flow_run.id]}, "state": {"type": {"any_": ["CRASHED"]}}}
    _end(flow, runs, StateType.CRASHED, "its machine was lost")


def _end(flow: Flow[..., Any], runs: dict[str, Any], kind: StateType, message: str) -> None:
    under_way = TaskRunFilter.model_validate({"state": {"type": {"any_": ["RUNNING", "PENDING"]}}})
    of_flow, of_runs = FlowFilter.model_validate({"name": {"any_": [flow.name]}}), FlowRunFilter.model_validate(runs)
    with get_client(sync_client=True) as client:
        for run in client.read_task_runs(flow_filter=of_flow, flow_run_filter=of_runs, task_run_filter=under_way):
            client.set_task_run_state(run.id, State(type=kind, message=message), force=True)


ENDED: dict[str, Any] = {
    "on_running": [end_lost_task_runs],
    "on_cancellation": [end_task_runs],
    "on_crashed": [end_task_runs],
}
