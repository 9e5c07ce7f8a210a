"""Forgets documents: records what must go, then makes a release without it and its copies, the rest as it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from datamask import maps, storage
from datamask.api import Release
from datamask.carried_on import plan_again, previous_run
from datamask.changes import compare
from datamask.config import Config, change_settings, over_release, validate
from datamask.corpus.read import corpus_schema
from datamask.engine import Engine, Threads
from datamask.errors import ConfigError, InputError, several, some
from datamask.filter import forgotten
from datamask.filter.copy_counts import named_documents
from datamask.filter.forgotten import REASON
from datamask.release.housekeeping import holds_forgotten, must_forget
from datamask.release.publication import one_refresh, running
from datamask.release.release_folder import ReleaseFolder, find_release
from datamask.run import Run
from datamask.run_numbers import unchanged
from datamask.stages import ShardFiles, required


def forget(
    output: str,
    urls: Sequence[str] | None = None,
    domains: Sequence[str] | None = None,
    ids: Sequence[str] | None = None,
    texts: Sequence[str] | None = None,
    allow_loss: bool = False,
) -> Release:
    """`forget_lists` in this process, without Prefect; `run` of the release has the run's numbers."""
    out, lists = storage.output_folder(output), {"urls": urls, "domains": domains, "ids": ids, "texts": texts}
    with one_refresh(out), running(out):
        return Release.of_run(forget_lists(out, lists, Threads.alone, allow_loss))


def forget_lists(
    out: str, lists: Mapping[str, Sequence[str] | None], engine: Callable[[Config], Engine], allow_loss: bool = False
) -> dict[str, Any]:
    """Records what the lists name, and publishes a release without it; returns the run's numbers, or why there is none.

    :param lists: by `forgotten.KINDS`. :param engine: what does the work, for the last release's settings.
    :raises InputError: no entry names anything. :raises ConfigError: nothing is to be forgotten.
    """
    last = find_release(out)
    asked = [(kind, each) for kind, given in lists.items() for each in given or ()]
    entries = [entry for kind, each in asked for entry in forgotten.read_list(each, kind)]
    left_out = forgotten.record_entries(out, entries)
    if entries and len(left_out) == len(entries):
        what = f"none of {several(len(entries), 'entry', 'entries')} names a page, a site or a document"
        raise InputError(f"{what} ({some(left_out, 5)}); a site is given as example.com")
    if forgotten.digest_of(out) is None:
        raise ConfigError("nothing is to be forgotten; give --urls, --domains, --ids or --texts")
    if not must_forget(out, last):
        return unchanged(last, f"release {last.version} holds nothing of what is named")
    work = storage.join(out, "work")
    remedy = f"what to forget is recorded, and this makes the release: datamask refresh --output {out} --config FILE"
    settings = change_settings(validate(over_release(last.settings(), remedy=remedy)), run={"allow_loss": allow_loss})
    with engine(settings) as stages:
        plan = plan_again(stages, settings, out, last)
        known = {shard["shard"] for shard in last.manifest()["inputs"]}  # what is new is a refresh's
        plan = replace(plan, shards=tuple(shard for shard in plan.shards if shard.name in known))
        changes = compare(last.seen_from_here(), plan, settings)
        previous = previous_run(last, settings, work, changes, keep=not changes.changed)  # rows have other places there
        first = Run(stages, plan, out, previous)
        first.keep_to(["index", "signatures"])
        named = record_texts(out, first.measure_and_decide(), settings, last, maps.Threads(stages.workers))
        if not named and not (changes and holds_forgotten(out, last)):
            forgotten.mark_done(out, last.version)
            return unchanged(last, f"no document of release {last.version} is named; it is recorded all the same")
        found = Run(stages, plan, out, previous).publish()
    counts = count_forgotten(last, find_release(found["release"]))
    return found | {"forgotten": counts | {"entries": len(entries) - len(left_out), "left_out": left_out}}


def record_texts(
    out: str, all_files: Sequence[ShardFiles], settings: Config, last: ReleaseFolder, run: maps.Mapper
) -> int:
    """Adds the texts of the documents that the record names otherwise, so that they never return under another name.

    Returns how many documents the record names that the last release has not forgotten.
    """
    requests = forgotten.load_requests(storage.join(out, "work"))
    assert requests is not None
    schema = corpus_schema([files.shard for files in all_files], settings)
    contents = _contents(last)
    same = {files.shard.name for files in all_files if contents.get(files.shard.name) == files.shard.fingerprint}
    found = run(partial(_named_texts, requests, settings, schema, same), last, all_files)
    forgotten.write_rows(out, [row for _, rows in found for row in rows])
    return sum(named for named, _ in found)


def _named_texts(
    requests: forgotten.Requests,
    settings: Config,
    schema: pa.Schema,
    same: Collection[str],
    last: ReleaseFolder,
    files: ShardFiles,
) -> tuple[int, list[dict[str, Any]]]:
    """How many documents of a shard are named and not forgotten yet, and rows of the record of those named otherwise
    than by their text. schema: of the corpus. same: the shards whose rows are where the last release has them."""
    hits = named_documents(files, settings, requests, schema)
    there = np.unique(hits["document"])
    if len(there) and files.shard.name in same:
        reasons = last.decisions(files.shard.name, ["reason"])
        there = there[~_are(reasons, "reason", REASON)[there]]
    told = requests.told(hits["entry"])
    by_text = np.array([told[entry]["kind"] == "texts" for entry in hits["entry"].tolist()], bool)
    hits = np.sort(hits[~by_text], order="document")
    places, entries = pa.array(hits["document"]), [told[entry] for entry in hits["entry"].tolist()]
    hashes = storage.read_table(required(files.index).path, ["text_hash"]).take(places)["text_hash"].to_pylist()
    signed = storage.read_table(files.signatures.path).take(places).to_pylist() if files.signatures else None
    rows = zip(hashes, entries, signed or [{}] * len(hashes), strict=True)
    return len(there), [forgotten.text_row(hashed, why["list"], why["entry"], own) for hashed, why, own in rows]


def count_forgotten(before: ReleaseFolder, after: ReleaseFolder) -> dict[str, int]:
    """Documents that are forgotten, those of them that the release before had chosen, and what else came or went."""
    known, contents = _contents(before), _contents(after)
    found = Counter(documents=0, were_chosen=0, left_besides=0, entered=0)
    for shard, counts in after.manifest()["conservation"]["shards"].items():
        found["documents"] += counts["filtered"].get(REASON, 0)
        if known.get(shard) == contents[shard]:
            was, now = before.decisions(shard, ["outcome"]), after.decisions(shard, ["outcome", "reason"])
            gone, old, new = _are(now, "reason", REASON), *(_are(each, "outcome", "selected") for each in (was, now))
            found.update(were_chosen=(old & gone).sum(), left_besides=(old & ~gone & ~new).sum())
            found.update(entered=(new & ~old).sum())
    return {name: int(count) for name, count in found.items()}


def _contents(release: ReleaseFolder) -> dict[str, str]:
    """The fingerprint of each shard of a release: in a shard of the same one a document has the same place."""
    return {shard["shard"]: shard["fingerprint"] for shard in release.manifest()["inputs"]}


def _are(decisions: pa.Table, column: str, value: str) -> np.ndarray:
    """(rows,) bool: which rows' decisions have this value."""
    return np.asarray(pa.compute.equal(decisions[column], value).fill_null(False), bool)


def told(counts: dict[str, Any], output: str) -> Iterable[str]:
    """What the command says at its end."""
    again = ", for all was selected again" if counts["left_besides"] else ""
    yield (
        f"forgotten: {several(counts['documents'], 'document')}, {counts['were_chosen']:,} of them in the last "
        f"release; {counts['entered']:,} took their place, {counts['left_besides']:,} others left{again}"
    )
    if named := counts["left_out"]:
        what = several(len(named), "entry", "entries")
        yield f"left out: {what} of the lists that can be no page, site or document ({some(named, 5)})"
    yield f"older releases and work/ may still hold them: datamask clean {output} --yes"
