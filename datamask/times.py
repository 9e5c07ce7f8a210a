"""How long each stage took the last time, for what the terminal and the UI say of the time to go: work/times.json.

A stage of one worker looks at a sample of the corpus, so its time stays; the others' grows with the corpus.
"""

from collections.abc import Mapping

from datamask import storage
from datamask.corpus.plan import Plan
from datamask.pipeline import STAGES
from datamask.progress import Board

TIMES = "times.json"


def expected(work: str, plan: Plan) -> dict[str, float]:
    """Seconds of each stage as far as an earlier run tells, for a corpus of this plan's size."""
    size = size_of(plan)
    try:
        return {
            stage: float(facts["seconds"]) * (1 if STAGES[stage].by == "one" else size / max(facts["bytes"], 1))
            for stage, facts in _held(work).items()
            if stage in STAGES
        }
    except (ValueError, KeyError, TypeError):  # another version's
        return {}


def keep_times(work: str, plan: Plan, board: Board) -> None:
    """Stores the seconds of the stages that did all their work in this run, beside what is known of the others."""
    found, size = _held(work), size_of(plan)
    for line in board.stages.values():
        if line.done and not line.cached and not line.failed:
            found[line.stage] = {"seconds": round(line.elapsed, 2), "bytes": size}
    storage.write_json(storage.join(work, TIMES), found)


def size_of(plan: Plan) -> int:
    """Bytes of the input's files."""
    return sum(part.bytes for shard in plan.shards for part in shard.parts)


def _held(work: str) -> dict[str, Mapping[str, float]]:
    """What earlier runs stored; nothing where that cannot be read."""
    try:
        return dict(storage.read_json(storage.join(work, TIMES)))
    except (FileNotFoundError, ValueError, TypeError):
        return {}
