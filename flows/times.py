"""How long each stage took the last time, for what the terminal and the UI say of the time to go: work/times.json.

A stage of one worker looks at a sample of the corpus, so its time stays; the others' grows with the corpus.
"""

from collections.abc import Mapping

from datamask import storage
from datamask.corpus.plan import Plan
from datamask.stages import STAGES
from tasks.progress import Board

TIMES = "times.json"


def expected(work: str, plan: Plan) -> dict[str, float]:
    """Seconds of each stage as far as an earlier run tells, for a corpus of this plan's size."""
    try:
        held = storage.read_json(storage.join(work, TIMES))
        return {
            stage: float(facts["seconds"])
            * (1 if STAGES[stage].by == "one" else size_of(plan) / max(facts["bytes"], 1))
            for stage, facts in held.items()
            if stage in STAGES
        }
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):  # none yet, or another version's
        return {}


def keep(work: str, plan: Plan, board: Board) -> None:
    """Stores the seconds of the stages that did all their work in this run, beside what is known of the others."""
    found: dict[str, Mapping[str, float]] = {}
    url = storage.join(work, TIMES)
    if storage.exists(url):
        try:
            found = dict(storage.read_json(url))
        except (ValueError, TypeError):
            found = {}
    for line in board.stages.values():
        if line.done and not line.cached and not line.failed:
            found[line.stage] = {"seconds": round(line.elapsed, 2), "bytes": size_of(plan)}
    storage.write_json(url, found)


def size_of(plan: Plan) -> int:
    """Bytes of the input's files."""
    return sum(part.bytes for shard in plan.shards for part in shard.parts)
