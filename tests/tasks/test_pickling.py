import cloudpickle

from datamask.config import Config
from datamask.corpus.plan import Shard
from datamask.pipeline import STAGES
from datamask.stages import ShardFiles
from datamask.work import BatchWork, OneWork
from tasks.stage import run_work


def test_the_task_and_its_work_can_be_sent_to_another_process():
    assert cloudpickle.loads(cloudpickle.dumps(run_work)).name == run_work.name
    batch = BatchWork([STAGES["embed"]], Config(), [ShardFiles(Shard("a", (), "a"))], [{"work": "out/work"}])
    again = cloudpickle.loads(cloudpickle.dumps(batch))
    assert (again.label, again.stage, again.batch) == (batch.label, batch.stage, batch.batch)
    assert cloudpickle.loads(cloudpickle.dumps(OneWork(STAGES["plan"], Config(), {}))).label == "plan: list the shards"


def test_prefect_looks_for_no_results_among_the_shards_it_is_given():
    from prefect.utilities.collections import visit_collection

    seen, work = [], BatchWork([STAGES["embed"]], Config(), [ShardFiles(Shard("a", (), "a"))], [{}])
    visit_collection(work, visit_fn=lambda found, *_: seen.append(found) or found, return_data=False)
    assert seen == [work]
