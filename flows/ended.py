"""What Prefect's UI shows of a flow run that was cancelled, or whose process was killed: its task runs end with it."""

from __future__ import annotations

from typing import Any

from prefect import Flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId, TaskRunFilter
from prefect.client.schemas.objects import FlowRun, State, StateType


def end_task_runs(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """A hook of flows, which their worker calls: nobody else can tell the end of the tasks that were under way."""
    of_run = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run.id]))
    under_way = TaskRunFilter.model_validate({"state": {"type": {"any_": ["RUNNING", "PENDING"]}}})
    kind = StateType.CRASHED if state.type == StateType.CRASHED else StateType.CANCELLED
    with get_client(sync_client=True) as client:
        for run in client.read_task_runs(flow_run_filter=of_run, task_run_filter=under_way):
            client.set_task_run_state(run.id, State(type=kind, message="it ended with its flow run"), force=True)


ENDED: dict[str, Any] = {"on_cancellation": [end_task_runs], "on_crashed": [end_task_runs]}
