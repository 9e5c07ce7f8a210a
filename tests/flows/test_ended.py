"""Task runs end with their flow run, also where its process cannot say so."""

import time
from threading import Event

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State, StateType
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
from prefect.states import Completed, Crashed, Pending, Running

from datamask.progress import Board, EndedError
from flows import ended
from flows.ablate import ablate
from flows.artifacts import progress_text
from flows.curate import curate
from flows.ended import beating, end_lost_task_runs, end_task_runs
from flows.forget import forget
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


def test_what_a_lost_machine_left_under_way_ends_when_the_flow_runs_next(prefect_server):
    with get_client(sync_client=True) as client:
        begun, lost, beside = (client.create_flow_run(ablate, state=state()) for state in (Running, Crashed, Running))
        other = client.create_flow_run(refresh, state=Crashed())
        made = [
            client.create_task_run(run_work, of.id, dynamic_key="0", state=Running())
            for of in (begun, lost, beside, other)
        ]
        end_lost_task_runs(ablate, begun, begun.state)
        found = [client.read_task_run(each.id).state_name for each in made]
    assert found == ["Crashed", "Crashed", "Running", "Running"]


@pytest.mark.parametrize("frequency", [180, None])
def test_a_run_tells_that_it_lives_until_it_ends_where_somebody_listens(monkeypatch, frequency):
    told, beats = [], Event()
    monkeypatch.setattr(ended, "BEAT", 0.01)
    monkeypatch.setattr(ended, "emit_event", lambda name, resource: told.append(name) or beats.set())
    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: frequency}), beating():
        assert beats.wait(30 if frequency else 0.1) == bool(frequency)
    time.sleep(0.1)
    told.clear()
    time.sleep(0.1)
    assert not told


def test_work_that_stops_with_its_run_shows_as_cancelled():
    def work():
        raise EndedError

    assert run_work.fn("label", work).name == "Cancelled"


@pytest.mark.parametrize("flow", [curate, refresh, ablate, forget])
def test_every_deployed_flow_says_so(flow):
    assert flow.on_cancellation_hooks == flow.on_crashed_hooks == [end_task_runs]
    assert flow.on_running_hooks == [end_lost_task_runs]


def test_the_progress_of_a_run_that_failed_is_at_work_no_more():
    board = Board()
    board.begin("plan")
    assert progress_text(board).startswith("**plan**: working")
    board.ended = True
    assert progress_text(board).startswith("**plan**: stopped")
