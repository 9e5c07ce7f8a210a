"""Forget documents: record what must go, then a release without it and its copies, all else as it was chosen."""

from typing import Any

from prefect import flow

from datamask import storage
from datamask.forgetting import forget_lists
from datamask.release.publication import one_refresh, running
from flows.curate import finished
from flows.ended import ENDED, beating
from flows.hints import for_this_reader
from flows.stage_runs import Stages


@flow(name="forget", flow_run_name="forget {output}", **ENDED)
def forget(
    output: str = "out/curated",
    urls: list[str] | None = None,
    domains: list[str] | None = None,
    ids: list[str] | None = None,
    texts: list[str] | None = None,
    allow_loss: bool = False,
) -> dict[str, Any]:
    """Make a release without what these lists name, nor its copies; it never comes back into this output folder.

    Args:
        output: Folder or URL with work/ and releases/.
        urls: Lists of addresses (files, packed too: lines, CSV, JSON lines), or addresses.
        domains: Lists of domains, with all that lies in them, or domains.
        ids: Lists of the documents' ids, or ids.
        texts: Lists of texts, or texts; kept as hashes alone.
        allow_loss: Publish though shards of the last release, or many of its rows, are gone from the input.
    """
    out = storage.output_folder(output)
    lists = {"urls": urls, "domains": domains, "ids": ids, "texts": texts}
    with beating(), for_this_reader(), one_refresh(out), running(out):
        return finished(forget_lists(out, lists, lambda settings: Stages(settings, out), allow_loss), out)
