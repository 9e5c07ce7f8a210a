import pickle

import pytest

from datamask.corpus.plan import Shard
from datamask.errors import InputError, TransientError
from datamask.stages import ShardFiles
from tasks.batch import ShardFailure, ShardsFailed, Unsearched, describe, run_batch
from tasks.progress import BOARD, Board


def shards(*names):
    return [ShardFiles(Shard(name, (), name)) for name in names]


@pytest.fixture
def board():
    token = BOARD.set(Board())
    BOARD.get().begin("embed", 3, 30)
    yield BOARD.get()
    BOARD.reset(token)


def test_one_broken_shard_costs_itself_alone():
    def work(files, progress):
        if files.shard.name == "b":
            raise InputError("b.parquet is cut short")
        return files, False

    with pytest.raises(ShardsFailed) as caught:
        run_batch("embed", shards("a", "b", "c"), work)
    assert [result.files.shard.name for result in caught.value.done] == ["a", "c"]
    assert caught.value.failures == (ShardFailure("b", "embed", "b.parquet is cut short", False),)
    assert str(caught.value) == "b: b.parquet is cut short"
    assert not caught.value.can_retry


@pytest.mark.parametrize(("error", "helps"), [(TransientError("reset"), True), (ValueError("bad"), False)])
def test_a_failure_says_whether_a_retry_helps_and_survives_pickling(error, helps):
    def work(files, progress):
        raise error

    with pytest.raises(ShardsFailed) as caught:
        run_batch("embed", shards("a"), work)
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.can_retry is helps
    assert str(again) == str(caught.value)


def test_all_cached_is_a_state_of_that_name():
    state = run_batch("embed", shards("a", "b"), lambda files, progress: (files, True))
    assert state.name == "Cached"
    assert state.is_completed()


def test_progress_reaches_the_board_and_a_retry_starts_again(board):
    def work(files, progress):
        progress(4)
        raise OSError("flaky")

    for _ in range(3):
        with pytest.raises(ShardsFailed):
            run_batch("embed", shards("a"), work)
    assert board.stages["embed"].rows == 4
    board.complete("embed", "a", 10, 1.5, cached=False)
    board.fail("embed", "b")
    board.end("embed")
    line = board.stages["embed"]
    assert (line.rows, line.done, line.cached, line.failed, line.seconds) == (10, 1, 0, 1, 1.5)


def test_others_errors_are_described_with_their_type():
    assert describe(ZeroDivisionError("one\ntwo")) == "ZeroDivisionError: one two"
    assert describe(InputError("plain")) == "plain"
    assert describe(MemoryError("8 GiB")).startswith("out of memory: set run.workers")


def test_prefect_looks_for_no_results_among_the_shards_it_is_given():
    from prefect.utilities.collections import visit_collection

    seen, batch = [], Unsearched(shards("a", "b"))
    visit_collection(batch, visit_fn=lambda found, *_: seen.append(found) or found, return_data=False)
    assert seen == [batch] and list(batch) == shards("a", "b")
    assert list(pickle.loads(pickle.dumps(batch))) == list(batch)
