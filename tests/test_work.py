import pickle

import pytest

from datamask.config import Config
from datamask.corpus.plan import Shard
from datamask.errors import ConfigError, InputError, TransientError
from datamask.pipeline import Stage
from datamask.progress import BOARD, Board
from datamask.stages import ShardFiles
from datamask.storage import Output
from datamask.work import BatchWork, ShardFailure, ShardsFailed, describe


def broken(shard):
    if shard.name == "b":
        raise InputError("b.parquet is cut short")
    return Output(shard.name, "k", 5)


def there(shard):
    return Output(shard.name, "k", 5, cached=True)


def reset(shard):
    raise TransientError("reset")


def bad(shard):
    raise ValueError("bad")


def lacking(shard):
    raise ConfigError("the extension mine.py: No module named 'own'") from ModuleNotFoundError("No module named 'own'")


def flaky(progress):
    progress(4)
    raise OSError("flaky")


def batch(run, *names):
    stage = Stage("embed", "shard", None, (), run=f"{__name__}:{run.__name__}", makes="embeddings")
    return BatchWork([stage], Config(), [ShardFiles(Shard(name, (), name)) for name in names], [{}])


@pytest.fixture
def board():
    token = BOARD.set(Board())
    BOARD.get().begin("embed", 3, 30)
    yield BOARD.get()
    BOARD.reset(token)


def test_one_broken_shard_costs_itself_alone():
    with pytest.raises(ShardsFailed) as caught:
        batch(broken, "a", "b", "c")()
    assert [result.files.embeddings.path for result in caught.value.done] == ["a", "c"]
    assert caught.value.failures == (ShardFailure("b", "embed", "b.parquet is cut short", False),)
    assert str(caught.value) == "b: b.parquet is cut short"
    assert not caught.value.can_retry


@pytest.mark.parametrize(("run", "helps"), [(reset, True), (bad, False)])
def test_a_failure_says_whether_a_retry_helps_and_survives_pickling(run, helps):
    with pytest.raises(ShardsFailed) as caught:
        batch(run, "a")()
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.can_retry is helps
    assert str(again) == str(caught.value)


def test_what_an_own_class_lacks_is_no_fault_of_the_installation():
    with pytest.raises(ShardsFailed, match=r"a: the extension mine\.py: No module named 'own'"):
        batch(lacking, "a")()


def test_a_batch_whose_files_were_there_is_cached():
    done = batch(there, "a", "b")()
    assert done.cached and done.message == "embed 2 shards: the output is there already"
    assert not batch(broken, "a")().cached


def test_progress_reaches_the_board_and_a_retry_starts_again(board):
    for _ in range(3):
        with pytest.raises(ShardsFailed):
            batch(flaky, "a")()
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
