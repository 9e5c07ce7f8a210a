"""Task runs end with their flow run, also where its process cannot say so."""

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State, StateType
from prefect.states import Completed, Pending, Running

from flows.ablate import ablate
from flows.curate import curate
from flows.ended import end_task_runs
from flows.refresh import refresh
from tasks.stage import run_work


@pytest.mark.parametrize(("ended", "named"), [(StateType.CRASHED, "Crashed"), (StateType.CANCELLING, "Cancelled")])
def test_what_was_under_way_ends_with_its_flow_run(prefect_server, ended, named):
    with get_client(sync_client=True) as client:
        run, other = (client.create_flow_run(curate, state=Running()) for _ in range(2))
        states = [(run, Running()), (run, Pending()), (run, Completed()), (other, Running())]
        made = [
            client.create_task_run(run_work, of.id, dynamic_key=str(place), state=state)
            for place, (of, state) in enumerate(states)
        ]
        end_task_runs(curate, run, State(type=ended))
        found = [client.read_task_run(each.id).state_name for each in made]
    assert found == [named, named, "Completed", "Running"]


@pytest.mark.parametrize("flow", [curate, refresh, ablate])
def test_every_deployed_flow_says_so(flow):
    assert flow.on_cancellation_hooks == flow.on_crashed_hooks == [end_task_runs]
