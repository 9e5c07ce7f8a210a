"""Bring the last release up to date: only what is new is read, embedded and scored; nothing new, no release.

prefect deployment run refresh/refresh -p output=out/curated
prefect event emit datamask.dump.ready --resource-id datamask.dump.CC-MAIN-2026-01
"""

from dataclasses import asdict
from typing import Annotated, Any

from prefect import flow
from prefect.logging import get_run_logger
from pydantic import Field

from datamask import storage
from datamask.carried_on import plan_again, previous_run
from datamask.changes import compare
from datamask.config import Config, Solver, change_settings, over_release, validate
from datamask.errors import ConfigError, InputError
from datamask.release.housekeeping import must_forget
from datamask.release.publication import one_refresh, running
from datamask.release.release_folder import find_release
from datamask.release.shift import shifts
from datamask.run import Run
from datamask.run_numbers import unchanged
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
    work = storage.join(out, "work")
    with beating(), for_this_reader(), one_refresh(out), running(out):
        try:
            last = find_release(out)
        except InputError:
            last = None
        base = validate(over_release(last.settings(), config)) if last else config or Config()
        asked = {"lamb": lamb, "token_ratio": token_ratio, "select_ratio": select_ratio, "solver": solver}
        settings = change_settings(
            base,
            corpus={"input": split_paths(input, "input")},
            select={"target": split_paths(target, "target"), **asked},
            run={"allow_failed_shards": allow_failed_shards, "allow_loss": allow_loss},
        )
        with Stages(settings, out) as stages:
            if not settings.corpus.input:
                raise ConfigError(
                    f"{out} has no release whose input could be read again, and no input is given: set `input` of the "
                    "deployment refresh/refresh-nightly (prefect.yaml), or -p input='dumps/*.parquet'"
                )
            plan = plan_again(stages, settings, out, last)
            if not last:
                get_run_logger().info("no release yet: the whole corpus is new")
                return finished(Run(stages, plan, out).publish(), out)
            changes = compare(last.seen_from_here(), plan, settings)
            stages.artifacts.show_changes(changes.describe())
            if not changes and not must_forget(out, last):
                return finished(unchanged(last, changes.describe()), out)
            get_run_logger().info("%s", changes.describe())
            previous = previous_run(last, settings, work, changes, keep=not changes)  # a `forget` was interrupted
            found = Run(stages, plan, out, previous).publish()
            drift = [asdict(shift) for shift in shifts(find_release(found["release"]), changes.read)]
            stages.artifacts.show_drift([shift["text"] for shift in drift], found["release"])
            told = {"changes": changes.describe(), "changed_settings": list(changes.settings)}
            return finished(found | told | {"previous": last.version, "drift": drift}, out)
