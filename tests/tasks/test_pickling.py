import cloudpickle
import pytest

from tasks import corpus, shards

TASKS = [corpus.plan, corpus.prepare_encoder, corpus.prepare_quality, corpus.filter_corpus, corpus.find_duplicates]
TASKS += [corpus.learn_prices, corpus.measure_drift, corpus.export, corpus.write_report, corpus.publish]
TASKS += [shards.convert, shards.index, shards.embed, shards.score, shards.mask]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_every_task_can_be_sent_to_another_process(task):
    assert cloudpickle.loads(cloudpickle.dumps(task)).name == task.name
