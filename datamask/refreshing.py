"""Brings the last release up to date with its input: only what is new is read, embedded and scored.

    from datamask.refreshing import refresh

    release = refresh("out/mine", Config(corpus={"input": ["dumps/*.parquet"]}))     # no server, no Prefect
    release.run["new"]                                                               # False: nothing was new

`flows.refresh` does the same by Prefect's tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from datamask import storage
from datamask.api import Release
from datamask.carried_on import plan_again, previous_run
from datamask.changes import compare
from datamask.config import Config, over_release, validate
from datamask.engine import Engine, Threads
from datamask.errors import ConfigError, InputError
from datamask.release.housekeeping import must_forget
from datamask.release.publication import one_refresh, running
from datamask.release.release_folder import ReleaseFolder, find_release
from datamask.release.shift import shifts
from datamask.run import Run
from datamask.run_numbers import unchanged


def refresh(output: str, config: Config | None = None) -> Release:
    """Refreshes in this process, without Prefect; `run` of the release has the run's numbers.

    :param config: laid over the last release's settings key by key.
    :raises DatamaskError: ConfigError, InputError, IncompleteError …: with what to do.
    """
    out = storage.output_folder(output)
    with one_refresh(out), running(out):
        last = last_release(out)
        return Release.of_run(bring_up_to_date(out, last, settings_over(last, config), Threads.alone))


def last_release(out: str) -> ReleaseFolder | None:
    """The last release of an output folder; None: everything is new."""
    with suppress(InputError):
        return find_release(out)
    return None


def settings_over(last: ReleaseFolder | None, config: Config | None) -> Config:
    """Settings laid over the last release's, key by key."""
    return validate(over_release(last.settings(), config)) if last else config or Config()


def bring_up_to_date(
    out: str, last: ReleaseFolder | None, settings: Config, engine: Callable[[Config], Engine]
) -> dict[str, Any]:
    """Publishes a release of what the input has now; returns the run's numbers, or why there is none.

    :param engine: what does the work, for these settings.
    :raises DatamaskError: as `refresh`.
    """
    if not settings.corpus.input:
        raise ConfigError(
            f"{out} has no release whose input could be read again, and no input is given: --input PATH, or for the "
            "deployment refresh/refresh-nightly its parameter `input` (prefect.yaml)"
        )
    with engine(settings) as stages:
        plan = plan_again(stages, settings, out, last)
        if not last:
            stages.log("no release yet: the whole corpus is new")
            return Run(stages, plan, out).publish()
        changes = compare(last.seen_from_here(), plan, settings)
        stages.show_changes(changes.describe())
        if not changes and not must_forget(out, last):
            return unchanged(last, changes.describe())
        stages.log(changes.describe())
        work = storage.join(out, "work")
        previous = previous_run(last, settings, work, changes, keep=not changes)  # a `forget` was interrupted
        found = Run(stages, plan, out, previous).publish()
        drift = [asdict(shift) for shift in shifts(find_release(found["release"]), changes.read)]
        stages.show_drift([shift["text"] for shift in drift], found["release"])
        told = {"changes": changes.describe(), "changed_settings": list(changes.settings)}
        return found | told | {"previous": last.version, "drift": drift}
