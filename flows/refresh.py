"""Bring the last release up to date: only what is new is read, embedded and scored; nothing new, no release.

prefect deployment run refresh/refresh -p output=out/curated
prefect event emit datamask.dump.ready --resource-id datamask.dump.CC-MAIN-2026-01
"""

from typing import Annotated, Any

from prefect import flow
from pydantic import Field

from datamask import storage
from datamask.config import Config, Solver, change_settings
from datamask.refreshing import bring_up_to_date, last_release, settings_over
from datamask.release.publication import one_refresh, running
from flows.curate import finished
from flows.ended import ENDED, beating
from flows.hints import for_this_reader, split_paths
from flows.stage_runs import Stages


@flow(name="refresh", flow_run_name="refresh {output}", **ENDED)
def refresh(
    input: str = "",
    output: str = "out/curated",
    target: str = "",
    lamb: Annotated[float | None, Field(ge=0, le=1)] = None,
    token_ratio: Annotated[float | None, Field(gt=0)] = None,
    select_ratio: Annotated[float | None, Field(gt=0, le=1)] = None,
    solver: Solver | None = None,
    allow_failed_shards: bool = False,
    allow_loss: bool = False,
    config: Config | None = None,
) -> dict[str, Any]:
    """Bring the last release up to date with its input; nothing new, no release.

    Args:
        input: Files, folders or globs, separated by spaces; empty: those of the last release.
        output: Folder or URL with work/ and releases/.
        target: Files of texts that the choice shall explain, separated by spaces; empty: the last release's.
        lamb: λ, the weight of quality: 1 is top-quality, 0 diversity alone; None: the last release's.
        token_ratio: Share of the tokens to keep; None: the last release's.
        select_ratio: Share of the documents to keep, instead of tokens; None: the last release's.
        solver: relaxation, policy-gradient, greedy, or a baseline; None: the last release's.
        allow_failed_shards: Publish without files and shards that failed; the manifest names them.
        allow_loss: Publish though shards of the last release, or many of its rows, are gone.
        config: Settings to change, laid over the last release's key by key; None: none.
    """
    out = storage.output_folder(output)
    with beating(), for_this_reader(), one_refresh(out), running(out):
        last = last_release(out)
        asked = {"lamb": lamb, "token_ratio": token_ratio, "select_ratio": select_ratio, "solver": solver}
        settings = change_settings(
            settings_over(last, config),
            corpus={"input": split_paths(input, "input")},
            select={"target": split_paths(target, "target"), **asked},
            run={"allow_failed_shards": allow_failed_shards, "allow_loss": allow_loss},
        )
        return finished(bring_up_to_date(out, last, settings, lambda settings: Stages(settings, out)), out)
