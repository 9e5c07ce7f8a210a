import cloudpickle
import pytest

from tasks import corpus
from tasks import per_shard as shards
from tasks import round_items as rounds

TASKS = [
    corpus.plan,
    corpus.prepare_tokenizer,
    corpus.prepare_encoder,
    corpus.prepare_quality,
    corpus.publish,
    rounds.run_round,
]
TASKS += [shards.convert, shards.index, shards.embed, shards.score, shards.sign, shards.atoms, shards.mask]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_every_task_can_be_sent_to_another_process(task):
    assert cloudpickle.loads(cloudpickle.dumps(task)).name == task.name
