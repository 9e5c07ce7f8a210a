"""The whole pipeline: plan → convert → encoder → index … signatures → filter → duplicates → prices → mask → release.

prefect deployment run curate/curate -p input='dumps/*.parquet' -p output=out/curated -p lamb=0.6
"""

from typing import Annotated, Any

from prefect import flow
from prefect.logging import get_run_logger
from prefect.states import Completed
from pydantic import Field

from datamask import storage
from datamask.config import Config, Solver, change_settings
from datamask.pipeline import STAGES
from datamask.release.publication import running
from datamask.run import Run
from datamask.run_numbers import warning_sentences
from flows import artifacts
from flows.console import summary_text
from flows.ended import ENDED, beating
from flows.hints import for_this_reader, split_paths
from flows.stage_runs import Stages


@flow(name="curate", flow_run_name="curate → {output}", **ENDED)
def curate(
    input: str = "",
    output: str = "out/curated",
    target: str = "",
    lamb: Annotated[float | None, Field(ge=0, le=1)] = None,
    token_ratio: Annotated[float | None, Field(gt=0)] = None,
    select_ratio: Annotated[float | None, Field(gt=0, le=1)] = None,
    solver: Solver | None = None,
    allow_failed_shards: bool = False,
    config: Config = Config(),
) -> dict[str, Any]:
    """Curate a corpus end to end: read, embed, score, select, filter, publish, report.

    Args:
        input: Files, folders or globs, separated by spaces; empty: corpus.input.
        output: Folder or URL for work/ and releases/.
        target: Files of texts that the choice shall explain, separated by spaces; empty: select.target.
        lamb: λ, the weight of quality: 1 is top-quality, 0 diversity alone; None: select.lamb.
        token_ratio: Share of the tokens to keep; None: select.token_ratio.
        select_ratio: Share of the documents to keep, instead of tokens; None: select.select_ratio.
        solver: relaxation (the default), policy-gradient, greedy, or a baseline; None: select.solver.
        allow_failed_shards: Publish without files and shards that failed; the manifest names them.
        config: Every setting; `datamask config` explains them.
    """
    asked = {"lamb": lamb, "token_ratio": token_ratio, "select_ratio": select_ratio, "solver": solver}
    with beating(), for_this_reader():
        settings = change_settings(
            config,
            corpus={"input": split_paths(input, "input")},
            select={"target": split_paths(target, "target"), **asked},
            run={"allow_failed_shards": allow_failed_shards},
        )
        out = storage.output_folder(output)
        with running(out), Stages(settings, out) as stages:
            plan = stages.run(STAGES["plan"], settings=settings.corpus, work=storage.join(out, "work"), previous=None)
            return finished(Run(stages, plan, out).publish(), out)


def finished(found: dict[str, Any], out: str) -> Any:
    """The flow run's last state: Completed, with where the release is, or why there is none, so that a list of runs
    says it.

    Its log ends with the summary, and what trains on the output hears of a new release.
    """
    log = get_run_logger()
    if "release" not in found:
        log.info("%s", found["message"])
        return Completed(message=found["message"], data=found)
    for warning in warning_sentences(found):
        log.warning("%s", warning)
    log.info("%s", summary_text(found))
    if found["new"]:
        artifacts.announce_release(found, out)
    message = f"{found['release']}{'' if found['new'] else ' (unchanged)'}"
    if changed := found.get("changed_settings"):
        message += f"; changed settings: {'; '.join(changed)}"
    return Completed(message=message, data=found)
