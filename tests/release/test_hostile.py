"""Releases made to harm: what they name never leads out of a folder, whatever is done with them."""

import json
import os
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from datamask.errors import DatamaskError, InputError, StorageError
from datamask.release.compare import compare
from datamask.release.explain import explain
from datamask.release.manifest import release_key
from datamask.release.push import upload_release
from datamask.release.release_folder import ReleaseFolder
from datamask.release.verify import verify
from tests.release.fuzz_hostile import check_hostile
from tests.release.made import released, settings
from tests.release.test_verify import rewrite_manifest


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("original")
    return folder, released(folder, settings(release={"rows_per_file": 60}))[1]


@pytest.fixture
def release(original, tmp_path):
    _, release = original
    path = tmp_path / "here" / "releases" / release.version
    shutil.copytree(release.path, path)
    return ReleaseFolder(str(path), release.version, release.key)


def tree(folder):
    return {path.relative_to(folder).as_posix(): path.lstat().st_size for path in folder.rglob("*")}


def renamed(old, new):
    """Every place of the manifest that names the shard."""

    def change(manifest):
        text = json.dumps(manifest).replace(json.dumps(old), json.dumps(new))
        text = text.replace(f"decisions/{old}.parquet", f"decisions/{json.dumps(new)[1:-1]}.parquet")
        manifest.clear()
        manifest.update(json.loads(text))

    return change


NAMES = ["../../secret", "/etc/passwd", "..", "a/b", "a\\b", "", ".hidden", "a\x00b", "a\nb", "x" * 300, "日本"]


@pytest.mark.parametrize("name", NAMES)
def test_a_shards_name_never_becomes_a_path_elsewhere(original, release, tmp_path, name):
    folder, _ = original
    rewrite_manifest(release, renamed("s0", name))
    before = tree(tmp_path)
    assert verify(release, [str(folder / "input")]).problems
    for use in (
        lambda: explain(release, "s0/0"),
        lambda: compare(release, release),
        lambda: upload_release(release, str(tmp_path / "there")),
    ):
        with pytest.raises(DatamaskError, match="no release has such a manifest"):
            use()
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    "path",
    ["../../secret.txt", "/etc/passwd", "data/../../x.parquet", "data/x/../../../y.parquet", "notes.txt",
     "data/./x.parquet", ".git/config", "decisions/../secret.parquet", "data//x.parquet", "README.md/../../x"],
)  # fmt: skip
def test_a_files_path_is_never_one_elsewhere(release, tmp_path, path):
    secret = tmp_path / "here" / "secret.txt"
    secret.write_text("secret")

    def change(manifest):
        manifest["files"].append({"path": path, "bytes": 6, "sha256": "0" * 64})

    rewrite_manifest(release, change)
    target = tmp_path / "there" / "target"
    with pytest.raises(InputError, match="no release has such a manifest"):
        upload_release(release, str(target))
    assert not target.parent.exists()
    assert verify(release).problems


def test_a_link_in_a_release_sends_no_other_file(release, tmp_path):
    path = next(Path(release.path).glob("decisions/*.parquet"))
    secret = tmp_path / "secret"
    secret.write_bytes(b"s" * path.stat().st_size)
    path.unlink()
    path.symlink_to(secret)
    with pytest.raises(StorageError, match="a symbolic link to a file outside the release"):
        upload_release(release, str(tmp_path / "there"))
    sent = [p.read_bytes() for p in (tmp_path / "there").rglob("*") if p.is_file()]
    assert secret.read_bytes() not in sent
    assert not (tmp_path / "there" / "manifest.json").exists()


@pytest.mark.parametrize("resealed", [True, False])
def test_an_edited_manifest_is_not_sent(release, tmp_path, resealed):
    path = Path(release.path, "manifest.json")
    if resealed:
        rewrite_manifest(release, lambda manifest: manifest["settings"]["select"].update(lamb=0.9))
    else:
        path.write_bytes(path.read_bytes().replace(b'"created": "20', b'"created": "21'))
    with pytest.raises(StorageError, match=r"manifest\.json was edited; see datamask verify"):
        upload_release(release, str(tmp_path / "there"))
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize("name", ["README.md", "quarantine.parquet"])
def test_a_pipe_in_a_release_makes_nobody_wait(release, tmp_path, name):
    path = Path(release.path, name)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(StorageError, match="a pipe, socket or device"):
        verify(release)
    with pytest.raises(StorageError):
        upload_release(release, str(tmp_path / "there"))


@pytest.mark.parametrize(
    "section, name, value",
    [
        ("select", "lamb", 0.9),
        ("filter", "where", "token_count > 5000"),
        ("select", "select_ratio", 0.01),
        ("quality", "combine", "rank"),
        ("encoder", "dimensions", 8),
        ("release", "license", "mit"),
    ],
)
def test_edited_settings_are_found_under_a_new_digest_and_a_new_key(release, tmp_path, section, name, value):
    def change(manifest):
        manifest["settings"][section][name] = value

    rewrite_manifest(release, change)
    assert any("have the key" in problem for problem in verify(release).problems)

    def with_key(manifest):
        key = release_key(manifest["inputs"], manifest["settings"], manifest["provenance"])
        manifest.update(key=key, version=f"0001-{key}")

    rewrite_manifest(release, with_key)
    manifest = json.loads(Path(release.path, "manifest.json").read_text())
    moved = Path(release.path).with_name(manifest["version"])
    Path(release.path).rename(moved)
    problems = verify(ReleaseFolder(str(moved), moved.name, manifest["key"])).problems
    parquets = sum(item["path"].endswith(".parquet") for item in manifest["files"])
    assert sum("is of a release with the key" in problem for problem in problems) == parquets


def test_how_the_work_was_done_is_no_part_of_the_key(release):
    manifest = json.loads(Path(release.path, "manifest.json").read_text())
    before = release_key(manifest["inputs"], manifest["settings"], manifest["provenance"])
    manifest["settings"]["run"]["workers"] = 7
    manifest["settings"]["corpus"]["input"] = ["elsewhere"]
    manifest["settings"]["select"]["device"] = "cuda"
    assert release_key(manifest["inputs"], manifest["settings"], manifest["provenance"]) == before


def test_the_digest_says_whether_it_is_the_release_that_was_published(release):
    digest = json.loads(Path(release.path, "manifest.json").read_text())["digest"]
    assert verify(release, digest=digest).problems == []
    [problem] = verify(release, digest="0" * 64).problems
    assert "it is another release" in problem


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["languages"].update(xx=3),
        lambda m: m["sources"][0].update(rows=1),
        lambda m: m["sources"][0].update(row_groups=[4, 2]),
        lambda m: m["conservation"]["total"].update(rows=10**30),
        lambda m: m["files"][0].update(bytes=1.0),
        lambda m: m["inputs"].append(dict(m["inputs"][0], shard="S0")),
        lambda m: m["settings"]["corpus"].pop("columns"),
        lambda m: m["settings"]["select"].pop("scope"),
        lambda m: m["settings"]["release"].update(keep="all"),
        lambda m: m["settings"]["select"].update(unheard_of=1),
        lambda m: m["settings"].update(duplicates="near"),
    ],
)
def test_numbers_and_forms_that_no_release_has_are_found(release, change):
    rewrite_manifest(release, change)
    assert verify(release).problems


def test_a_row_that_names_a_strange_shard_is_one_message(release, original):
    path = Path(release.path, "decisions", "s0.parquet")
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["price"]), path)
    with pytest.raises(DatamaskError, match="does not hold the decisions"):
        explain(release, "s0/0")
    path.write_bytes(b"PAR1 no parquet PAR1")
    with pytest.raises(DatamaskError, match="damaged"):
        explain(release, "s0/0")


def test_control_characters_never_reach_the_terminal(release, capsys):
    from datamask import cli

    Path(release.path, "x\x1b[2Jy\r").touch()
    with pytest.raises(SystemExit):
        cli.main(["verify", release.path])
    printed = capsys.readouterr().out
    assert "\x1b" not in printed and "\\x1b[2Jy\\r was added" in printed


@pytest.mark.slow
def test_mutated_releases_give_a_result_or_a_message(original, tmp_path):
    """A first look: `python benchmarks/fuzz_release.py --kind releases --examples 10000` is the whole of it."""
    folder, release = original
    outcomes = []
    for number in [*range(60), 76, 440, 1000, 5341, 102_049]:  # the last were defects once
        box = tmp_path / str(number)
        outcomes.append(check_hostile(release, folder / "input", box, number))
        shutil.rmtree(box)
    assert sum(found["verify"] == "refused" for found in outcomes) > 30
    assert {"passed", "InputError"} <= {found["push"] for found in outcomes}
