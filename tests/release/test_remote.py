"""Releases on an object store (a real S3 server on loopback): the same bytes as on disk, the manifest last."""

import json
import posixpath
from dataclasses import replace
from pathlib import Path

import pytest

from datamask import storage
from datamask.errors import TransientError
from datamask.filter.filters import filter_corpus
from datamask.release.publication import publish
from datamask.release.push import upload_release
from datamask.release.release_folder import ReleaseFolder, find_release, latest_version, list_versions
from datamask.release.staging import export
from datamask.release.verify import verify
from tests.object_store import clear_clients
from tests.release.made import PROVENANCE, make_corpus, make_masks, released, settings

ROWS = (60, 40)
CONFIG = settings(release={"rows_per_file": 60, "keep": 1})


def on_store(folder, out, config=CONFIG):
    """The stages from the filters on, with `out` on the store; the corpus and its stages' files lie on disk."""
    files = make_corpus(folder, ROWS)
    filters = filter_corpus(files, config, f"{out}/work")
    files = [make_masks(replace(f, filters=o), folder) for f, o in zip(files, filters, strict=True)]
    return files, export(files, config, out, PROVENANCE)


def names(url):
    fs, root = storage.filesystem(url)
    fs.invalidate_cache()
    return sorted(posixpath.relpath(path, root) for path in fs.find(root))


def test_the_same_release_as_on_disk(store, tmp_path):
    out = "s3://corpus/one"
    files, local = released(tmp_path, CONFIG, make_corpus(tmp_path, ROWS))
    _, staged = on_store(tmp_path, out)
    store.requests.clear()
    release = publish(staged)
    puts = [path for method, path in store.requests if method == "PUT" and "/releases/" in path]
    assert puts[-1].split("?")[0].endswith("/manifest.json")
    assert release.version == local.version and latest_version(out) == release.version
    mine, theirs = release.manifest(), local.manifest()
    assert mine["files"] == theirs["files"] and mine["key"] == theirs["key"]
    assert verify(find_release(out), [str(tmp_path / "input")]).problems == []
    assert names(f"{out}/work/staging") == [] if storage.exists(f"{out}/work/staging") else True
    again = publish(export(files, CONFIG, out, PROVENANCE))
    assert (again.version, again.new) == (release.version, False)


@pytest.mark.slow
def test_versions_latest_and_pruning(store, tmp_path):
    out = "s3://corpus/two"
    versions = []
    for rows in (200, 300, 400):
        _, staged = on_store(tmp_path, out, settings(release={"rows_per_file": rows, "keep": 1}))
        versions.append(publish(staged).version)
        assert list_versions(out) == versions[-2:]
        assert latest_version(out) == versions[-1]
    left = {name.split("/")[0] for name in names(f"{out}/releases")}
    assert left == set(versions[-2:])


@pytest.mark.parametrize("fault", ["reset", pytest.param("500", marks=pytest.mark.slow)])
def test_a_fault_in_the_middle_leaves_no_release_and_a_rerun_mends_it(store, tmp_path, fault):
    out = f"s3://corpus/fault-{fault}"
    files, staged = on_store(tmp_path, out)
    copies = [0]

    def fail(number, method, path):
        if method == "PUT" and "/releases/" in path:
            copies[0] += 1
            return fault if copies[0] > 3 else None
        return None

    store.fault = fail
    with pytest.raises(TransientError):
        publish(staged)
    store.fault = lambda number, method, path: None
    clear_clients()
    assert list_versions(out) == [] and latest_version(out) is None
    release = publish(export(files, CONFIG, out, PROVENANCE))
    assert release.new and verify(release).problems == []


def test_push_is_resumable(store, tmp_path):
    _, release = released(tmp_path, CONFIG, make_corpus(tmp_path, ROWS))
    url = "s3://corpus/pushed"
    sent = []

    class Stopped(Exception):
        pass

    def stop(path, size):
        sent.append(path)
        if len(sent) == 5:
            raise Stopped

    with pytest.raises(Stopped):
        upload_release(release, url, stop)
    assert "manifest.json" not in names(url)
    store.requests.clear()
    pushed = upload_release(release, url)
    assert set(sent) <= set(pushed.skipped)
    uploaded = {path for method, path in store.requests if method == "PUT"}
    assert not any(path.endswith(f"/{name}") for path in uploaded for name in sent)
    copy = ReleaseFolder(url, release.version, release.key)
    assert verify(copy).problems == [] and names(url) == sorted(
        [*(i["path"] for i in release.manifest()["files"]), "manifest.json"]
    )
    store.requests.clear()
    assert upload_release(release, url).uploaded == []
    assert not [path for method, path in store.requests if method == "PUT"]


def test_what_was_uploaded_is_not_read_back(store, tmp_path):
    _, release = released(tmp_path, CONFIG, make_corpus(tmp_path, ROWS))
    store.requests.clear()
    upload_release(release, "s3://corpus/sent")
    asked = [path for method, path in store.requests if method == "GET" and path.endswith(".parquet")]
    assert asked == [] and any(path.endswith(".parquet") for method, path in store.requests if method == "PUT")


@pytest.mark.slow
def test_push_from_a_store_and_a_fault_that_passes(store, tmp_path):
    _, staged = on_store(tmp_path, "s3://corpus/three")
    release = publish(staged)
    target = tmp_path / "copy"
    failed = [0]

    def fail(number, method, path):
        if method == "GET" and "/data/" in path:
            failed[0] += 1
            return "500" if failed[0] == 2 else None
        return None

    store.fault = fail
    with pytest.raises(TransientError):
        upload_release(release, str(target))
    store.fault = lambda number, method, path: None
    upload_release(release, str(target))
    assert verify(ReleaseFolder(str(target), release.version, release.key)).problems == []
    assert json.loads(Path(target, "manifest.json").read_text())["key"] == release.key
