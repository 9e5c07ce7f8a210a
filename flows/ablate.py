"""Several selections of one embedded corpus, side by side, with their table in the UI.

prefect deployment run ablate/ablate -p output=out/curated -p seeds=3
"""

from typing import Annotated, Any

from prefect import flow, task
from prefect.logging import get_run_logger
from pydantic import Field

from datamask import storage
from datamask.study import ablation
from datamask.study.ablation import ablate as compare_all
from datamask.study.embedded import load_corpus
from datamask.study.targets import read_targets
from flows.artifacts import show_ablation
from flows.ended import ENDED, beating
from flows.hints import for_this_reader, split_paths
from tasks.stage import STAGE


@flow(name="ablate", flow_run_name="ablate {output}", **ENDED)
def ablate(
    output: str = "out/curated",
    seeds: Annotated[int, Field(ge=1)] = 3,
    documents: Annotated[int, Field(ge=100)] = 10_000,
    only: str = "",
    targets: str = "",
) -> dict[str, Any]:
    """Compare selections of one embedded corpus at one budget: baselines, solvers, metrics, scopes.

    Args:
        output: The output folder of a curation.
        seeds: Seeds 0, 1, …: each draws its own documents.
        documents: Documents of a seed's pool, at most about.
        only: Only arms with one of these words in their name; empty: all.
        targets: Files of texts from outside the pool, on which the coder judges every arm; patterns too; empty: none.
    """
    out = storage.output_folder(output)
    with beating(), for_this_reader():
        paths = compare_arms(out, seeds, documents, only.split(), split_paths(targets, "targets"))
    with storage.open_input(paths["markdown"]) as file:
        show_ablation(file.read().decode(), out)
    return {"paths": paths}


@task(name="ablate", task_run_name="ablate: compare selections, seeds {seeds}", **STAGE)
def compare_arms(output: str, seeds: int, documents: int, only: list[str], targets: list[str]) -> dict[str, str]:
    """The table of all arms over all seeds, written beside the stages' files."""

    asked = read_targets(storage.expand_patterns(targets)) if targets else []
    work = load_corpus(output, 100, []).work  # what is wrong shows before the work, not after it
    log = get_run_logger()
    found = compare_all(
        lambda seed: load_corpus(output, documents, [], seed),
        list(range(seeds)),
        only,
        asked,
        lambda line: log.info("%s", line),
    )
    return dict(ablation.write_ablation(storage.join(work, "ablation"), found))
