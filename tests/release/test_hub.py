"""Uploads to the hub: one commit, nothing sent twice, old files gone; refusals are one message.

huggingface_hub itself runs, against the hub's protocol on loopback.
"""

import shutil
from pathlib import Path

import pytest

from datamask.errors import StorageError, TransientError
from datamask.release.push import upload_release
from datamask.release.release_folder import ReleaseFolder
from datamask.release.verify import verify
from tests.release.hub import running
from tests.release.made import released, settings

URL = "hf://datasets/owner/name"


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    return [
        released(folder / name, settings(release={"rows_per_file": rows}))[1] for name, rows in (("a", 40), ("b", 80))
    ]


@pytest.fixture
def hub():
    with running() as found:
        yield found


def on_disk(hub, folder):
    for name, data in hub.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return str(folder)


def test_a_release_is_one_commit_and_whole(two, hub, tmp_path):
    first, second = two
    pushed = upload_release(first, URL)
    assert hub.commits == [f"Release {first.version}"]
    assert set(pushed.uploaded) == hub.files.keys() and not pushed.skipped
    assert verify(ReleaseFolder(on_disk(hub, tmp_path / "one"), first.version, first.key)).problems == []
    hub.uploads.clear()
    again = upload_release(first, URL)
    assert hub.uploads == [] and set(again.uploaded) == {"manifest.json"}
    pushed = upload_release(second, URL)
    assert pushed.removed and all(path.startswith("data/") for path in pushed.removed)
    assert verify(ReleaseFolder(on_disk(hub, tmp_path / "two"), second.version, second.key)).problems == []


def test_an_interrupted_upload_goes_on(two, hub):
    first, _ = two
    hub.fail = lambda method, path: 403 if path.endswith("commit/main") else 0
    with pytest.raises(StorageError, match=r"the hub refused \(403: planned\); log in"):
        upload_release(first, URL)
    assert hub.commits == [] and hub.files == {}
    sent = len(hub.uploads)
    assert sent
    hub.fail = lambda method, path: 0
    upload_release(first, URL)
    assert len(hub.uploads) == sent and len(hub.commits) == 1
    assert hub.files["manifest.json"] == Path(first.path, "manifest.json").read_bytes()


def test_refusals_and_failures_are_told_apart(two, hub, monkeypatch):
    first, _ = two
    hub.fail = lambda method, path: 401
    with pytest.raises(StorageError, match="HF_TOKEN"):
        upload_release(first, URL)
    hub.fail = lambda method, path: 400
    with pytest.raises(StorageError, match=r"the hub refused \(400"):
        upload_release(first, URL)
    hub.fail = lambda method, path: 503
    with pytest.raises(TransientError, match=r"the hub failed \(503"):
        upload_release(first, URL)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")  # nobody listens
    with pytest.raises(TransientError, match="cannot be reached"):
        upload_release(first, URL)


def test_a_repository_is_private_unless_it_is_asked_to_be_public(two, hub):
    first, _ = two
    upload_release(first, URL)
    assert hub.private is True
    hub.private = None
    upload_release(first, URL, public=True)
    assert hub.private is False


def test_nothing_is_sent_to_a_public_repository_without_saying_so(two, hub):
    first, _ = two
    hub.private = False
    with pytest.raises(StorageError, match="is a public data set.*--public"):
        upload_release(first, URL)
    assert hub.files == {} and hub.uploads == []
    upload_release(first, URL, public=True)
    assert "manifest.json" in hub.files


def test_a_file_that_is_not_the_manifests_is_not_sent(two, hub, tmp_path):
    first, _ = two
    folder = tmp_path / "copy"
    shutil.copytree(first.path, folder)
    path = next(folder.glob("data/*/*.parquet"))
    secret = tmp_path / "secret"
    secret.write_bytes(b"s" * path.stat().st_size)
    path.write_bytes(secret.read_bytes())
    with pytest.raises(StorageError, match="is not as the manifest says"):
        upload_release(ReleaseFolder(str(folder), first.version, first.key), URL)
    assert hub.files == {}


def test_files_of_the_users_own_stay(two, hub):
    first, second = two
    hub.files["data/train-00000.parquet"] = b"the user's own"
    upload_release(first, URL)
    pushed = upload_release(second, URL)
    assert pushed.removed and hub.files["data/train-00000.parquet"] == b"the user's own"
    hub.files["manifest.json"] = b'{"name": "an extension"}'
    with pytest.raises(StorageError, match=r"manifest\.json: no release has such a manifest.*push to another place"):
        upload_release(first, URL)
