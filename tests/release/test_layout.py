"""Versions order by number, and `latest` and an output folder lead to a release."""

import pickle
import re

import pytest

from datamask import storage
from datamask.corpus.inputs import FORMATS
from datamask.errors import InputError
from datamask.release import release_folder as layout
from datamask.release.manifest import manifest_schema
from datamask.release.release_folder import Staged

KEYS = ["a" * 16, "0" * 16, "f" * 16]


def publish(out, version, key):
    storage.write_json(storage.join(layout.version_path(out, version), layout.MANIFEST), {"key": key})


def test_versions_order_by_number_not_by_letters(tmp_path):
    out = str(tmp_path)
    for number, key in zip([10_000, 2, 9999], KEYS, strict=True):
        publish(out, f"{number:04d}-{key}", key)
    (tmp_path / "releases" / "0001-not-one").mkdir()
    (tmp_path / "releases" / f"0003-{KEYS[0]}").mkdir()  # no manifest: no release
    assert [layout.version_number(v) for v in layout.list_versions(out)] == [2, 9999, 10_000]


def test_every_name_of_a_release_leads_to_it(tmp_path):
    out = str(tmp_path / "out")
    versions = [f"{n + 1:04d}-{key}" for n, key in enumerate(KEYS)]
    for version, key in zip(versions, KEYS, strict=True):
        publish(out, version, key)
    assert layout.find_release(out).version == versions[-1]
    layout.point_latest(out, versions[0])
    layout.point_latest(out, versions[1])
    for place in (out, f"{out}/latest", f"{out}/latest/", layout.version_path(out, versions[1])):
        found = layout.find_release(place)
        assert (found.version, found.key, found.new) == (versions[1], KEYS[1], False)
    assert not list((tmp_path / "out").glob(".latest*"))


@pytest.mark.parametrize("make, says", [(False, "no such folder"), (True, "neither manifest.json nor releases/")])
def test_no_release_says_what_was_found(tmp_path, make, says):
    place = tmp_path / "nothing"
    if make:
        place.mkdir()
    with pytest.raises(InputError, match=says):
        layout.find_release(str(place))


def test_staged_is_picklable():
    staged = Staged("out/work/staging/k", "out", "k")
    assert pickle.loads(pickle.dumps(staged)) == staged


def test_a_manifest_may_name_every_format_that_is_read():
    pattern = re.compile(manifest_schema()["properties"]["sources"]["items"]["properties"]["format"]["pattern"])
    assert not [kind for kind in FORMATS.values() if not pattern.search(kind)]
