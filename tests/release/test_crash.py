"""A crash at every step of export and publish: the old release or the new one is whole, a rerun ends in the same bytes.

benchmarks/kill_release.py does the same with kill -9 at random moments.
"""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from datamask.filter.filters import filter_corpus
from datamask.release.publication import publish
from datamask.release.release_folder import find_release, list_versions
from datamask.release.staging import export
from datamask.release.verify import verify
from tests.release.made import PROVENANCE, digests, make_corpus, make_masks, settings


class Crash(BaseException):
    """Not an Exception: nothing in the code may handle it."""


@pytest.mark.slow
def test_a_crash_at_every_step(tmp_path, monkeypatch):
    """Each time a file, folder or link takes its name: by turns just before, and just after."""
    template, folder = tmp_path / "template", tmp_path / "run"
    out = str(folder / "out")
    files = make_corpus(folder, (60,))

    def run(step):
        config = settings(filter={"min_tokens": step}, release={"rows_per_file": 25, "keep": 1})
        filters = filter_corpus(files, config, f"{out}/work")
        masked = [make_masks(replace(f, filters=o), folder, seed=step) for f, o in zip(files, filters, strict=True)]
        return publish(export(masked, config, out, PROVENANCE))

    pruned, old = run(1).version, run(2).version
    shutil.copytree(folder, template, symlinks=True)
    steps, crash_at = [0], [0]

    def counted(original):
        def step(self, *arguments, **options):
            steps[0] += 1
            crashes = steps[0] == crash_at[0]
            if crashes and steps[0] % 2:
                raise Crash
            found = original(self, *arguments, **options)
            if crashes:
                raise Crash
            return found

        return step

    for name in ("replace", "rename", "symlink_to"):
        monkeypatch.setattr(Path, name, counted(getattr(Path, name)))
    new = run(3)
    reference, total = digests(new.path, skip=("manifest.json",)), steps[0]
    assert total > 10
    seen = set()
    for number in range(1, total + 1):
        shutil.rmtree(folder)
        shutil.copytree(template, folder, symlinks=True)
        steps[0], crash_at[0] = 0, number
        with pytest.raises(Crash):
            run(3)
        crash_at[0] = 0
        latest = find_release(f"{out}/latest")
        assert latest.version in (old, new.version)
        seen.add(latest.version)
        assert set(list_versions(out)) <= {pruned, old, new.version}
        assert verify(latest).problems == []
        assert run(3).version == new.version
        assert digests(new.path, skip=("manifest.json",)) == reference
        assert not [path for path in Path(out, "releases").iterdir() if path.name.startswith(".")]
        assert not list(Path(out, "work", "staging").iterdir())
    assert seen == {old, new.version}
