"""`datamask forget`: what lists name goes with its copies, all else stays, and nothing of it comes back."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import datamask
from datamask import run
from datamask.config import validate
from datamask.engine import Threads
from datamask.errors import ConfigError, DamagedFileError, InputError
from datamask.forgetting import forget_lists
from datamask.release.explain import explain
from datamask.release.housekeeping import remove, roll_back, unneeded
from datamask.release.release_folder import find_release, list_versions
from datamask.release.verify import verify
from tests.filter.test_copy_counts import SMALL
from tests.filter.test_stage import document, noisy

ROOT = Path(__file__).parents[2]
DOCUMENTS = 60  # of a shard
COPIES = (  # planted: of a page of the site that must go
    lambda text, n: text,
    lambda text, n: text.upper().replace(". ", ".\n"),
    lambda text, n: noisy(text, 0.03, n),
)


def write_shard(folder: Path, shard: int, planted: int = 6) -> None:
    """Pages of ten sites; of those of bad.example copies lie on other sites, in the same words or nearly so."""
    generator = random.Random(shard)
    rows = []
    for number in range(DOCUMENTS):
        site = f"site{number % 10}.example" if number >= planted else "www.bad.example"
        rows.append((f"https://{site}/{shard}/{number}", document(1000 * shard + number, 150)))
    for number in range(planted):
        copy = COPIES[number % 3](rows[number][1], number)
        rows.append((f"https://mirror{number}.example/{shard}/{number}", copy))
    generator.shuffle(rows)
    folder.mkdir(parents=True, exist_ok=True)
    table = {"url": [url for url, _ in rows], "text": [text for _, text in rows]}
    pq.write_table(pa.table(table), folder / f"s{shard}.parquet", row_group_size=16)


def as_json_lines(path: Path) -> None:
    lines = [json.dumps(row) for row in pq.read_table(path).to_pylist()]
    path.unlink()
    path.with_suffix(".jsonl").write_text("\n".join(lines))


def curated(folder: Path, shards: int = 2, planted: int = 6) -> Path:
    """The output folder of a corpus of pages in `folder`, beside it."""
    for shard in range(shards):
        write_shard(folder / "in", shard, planted)
    curate(folder / "in", folder / "out")
    return folder / "out"


@pytest.fixture(scope="module")
def restored(tmp_path_factory):
    """restored(make) gives the folder that make(folder) worked in, as it left it: later tests begin there too.

    It is always at the same path, by which a release knows its input.
    """
    base = tmp_path_factory.mktemp("restored")

    def restore(make):
        live, kept = base / make.__name__, base / f"{make.__name__}-kept"
        if kept.exists():
            shutil.rmtree(live)
            return Path(shutil.copytree(kept, live, symlinks=True))
        make(live)
        shutil.copytree(live, kept, symlinks=True)
        return live

    return restore


def one_shard(folder: Path) -> None:
    curated(folder, shards=1)


def none_planted(folder: Path) -> None:
    curated(folder, planted=0)


def forgotten_of_json_lines(folder: Path) -> None:
    write_shard(folder / "in", 0, planted=0)
    write_shard(folder / "in", 1)
    as_json_lines(folder / "in" / "s1.parquet")
    curate(folder / "in", folder / "out")
    forget(folder / "out", domains=["bad.example"])


def curate(folder: Path, out: Path, **select):
    given = {**SMALL, "corpus": {**SMALL["corpus"], "input": [str(folder)]}, "select": {**SMALL["select"], **select}}
    return run.curate(validate(given), str(out))


def forget(out: Path, **lists):
    given = {kind: [str(each) for each in values] for kind, values in lists.items()}
    return forget_lists(str(out), given, Threads)


def chosen_of(out) -> dict[str, int]:
    found = find_release(str(out))
    return dict(duckdb.sql(f"SELECT url, length(text) FROM '{found.path}/data/*/*.parquet'").fetchall())


def is_bad(url: str) -> bool:
    return "bad.example" in url or "mirror" in url


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forget")
    for shard in range(2):
        write_shard(folder / "in", shard)
    (folder / "list.csv").write_text("domain,reason\nhttps://BAD.example/,robots\nnobody.example,\n")
    curate(folder / "in", folder / "out")
    before = chosen_of(folder / "out")
    return folder, before, forget(folder / "out", domains=[folder / "list.csv"])


def test_what_is_named_goes_with_its_copies_and_the_rest_stays(made):
    folder, before, told = made
    after = chosen_of(folder / "out")
    assert sum(map(is_bad, before)) > 3
    assert not any(map(is_bad, after))
    stays = {url for url in before if not is_bad(url)}
    assert stays <= after.keys()  # nothing else has left
    gone, come = (
        sum(sizes.values())
        for sizes in ({u: before[u] for u in before if is_bad(u)}, {u: after[u] for u in after if u not in before})
    )
    assert come <= 1.05 * gone + 1500 and come >= gone - 2500  # a document more or less
    assert told["forgotten"]["documents"] == 24 and told["forgotten"]["left_besides"] == 0
    assert told["forgotten"]["were_chosen"] == sum(map(is_bad, before))


def test_the_reason_is_told(made):
    folder, _, _ = made
    release = find_release(str(folder / "out"))
    rows = [row for shard in ("s0", "s1") for row in release.decisions(shard).to_pylist()]
    gone = [row for row in rows if row["reason"] == "forgotten"]
    assert len(gone) == 24 and {row["outcome"] for row in gone} == {"filtered"}
    [told] = explain(release, gone[0]["id"])
    assert told.setting == "forgotten, by list.csv: https://BAD.example/, or as a copy of what that names"
    assert told.pair is None


def test_verify_proves_it_of_the_new_release_and_not_of_the_old_one(made):
    folder, _, _ = made
    out = folder / "out"
    first, last = list_versions(str(out))
    assert verify(find_release(f"{out}/releases/{last}")).problems == []
    problems = verify(find_release(f"{out}/releases/{first}")).problems
    assert problems and all("must be forgotten (list.csv: https://BAD.example/)" in problem for problem in problems)


def test_neither_report_nor_card_shows_it(made):
    folder, _, _ = made
    release = Path(find_release(str(folder / "out")).path)
    bad = {
        row["text"]
        for path in (folder / "in").iterdir()
        for row in pq.read_table(path).to_pylist()
        if is_bad(row["url"])
    }
    begins = [text[:40] for text in bad]
    for path in [*release.glob("*.html"), *release.glob("*.json"), *release.glob("*.md")]:
        said = path.read_text()
        assert not any(text in said for text in begins), path
        assert "bad.example/" not in said.lower().replace("https://bad.example/ ", ""), path


@pytest.mark.slow
def test_nothing_returns_in_a_refresh_nor_in_a_curation(made):
    folder, _, _ = made
    out = folder / "out"
    text = pq.read_table(folder / "in" / "s0.parquet").to_pylist()
    page = next(row["text"] for row in text if "bad.example" in row["url"])
    rows = [
        {"url": f"https://elsewhere.example/{n}", "text": each} for n, each in enumerate([page, noisy(page, 0.02, 9)])
    ]
    rows += [{"url": f"https://new.example/{n}", "text": document(7000 + n, 150)} for n in range(40)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "in" / "s2.parquet")
    curate(folder / "in", out)
    after = chosen_of(out)
    assert not any(is_bad(url) or "elsewhere" in url for url in after) and any("new.example" in url for url in after)
    (folder / "in" / "s2.parquet").unlink()
    curate(folder / "in", out, lamb=0.5)
    assert not any(map(is_bad, chosen_of(out)))
    # the input that was forgotten has gone, and its text comes back elsewhere: hashes and samples tell
    for shard in range(2):
        kept = [row for row in pq.read_table(folder / "in" / f"s{shard}.parquet").to_pylist() if not is_bad(row["url"])]
        pq.write_table(pa.Table.from_pylist(kept), folder / "in" / f"s{shard}.parquet")
    pq.write_table(pa.Table.from_pylist(rows), folder / "in" / "s2.parquet")
    curate(folder / "in", out)
    assert not any("elsewhere" in url for url in chosen_of(out))


@pytest.mark.slow
def test_clean_removes_it_from_old_releases_and_work(tmp_path):
    for shard in range(2):
        write_shard(tmp_path / "in", shard, planted=6 if shard else 0)
    as_json_lines(tmp_path / "in" / "s1.parquet")  # which work/ holds a copy of
    out = tmp_path / "out"
    curate(tmp_path / "in", out)
    forget(out, domains=["nobody.example"])
    assert unneeded(str(out)).paths == ()
    forget(out, domains=["bad.example"])
    first, last = list_versions(str(out))
    found = unneeded(str(out))
    assert found.releases == (first,)
    assert any("/corpus/s1" in path for path in found.paths) and not any(
        "/embeddings/s0" in path for path in found.paths
    )
    assert remove(str(out)).releases == (first,)
    assert list_versions(str(out)) == [last] and remove(str(out)).paths == ()
    parts = [str(path) for path in (out / "work").rglob("*.parquet") if "text" in pq.read_schema(path).names]
    for path in parts:
        assert not any(is_bad(row["url"]) for row in pq.read_table(path).to_pylist())
    assert verify(find_release(str(out))).problems == []
    curate(tmp_path / "in", out)
    assert not any(map(is_bad, chosen_of(out)))


@pytest.mark.parametrize("name", [None, pytest.param("other.jsonl", marks=pytest.mark.slow)])
def test_clean_removes_it_of_files_that_are_gone_or_have_another_name(restored, name):
    folder = restored(forgotten_of_json_lines)
    out = folder / "out"
    (folder / "in" / "s1.jsonl").rename(folder / (f"in/{name}" if name else "gone.jsonl"))
    curate(folder / "in", out)
    assert list((out / "work/corpus").iterdir())
    remove(str(out), releases=2)
    assert not list((out / "work/corpus").iterdir()) and list((out / "work/index").glob("s0-*"))


def test_all_is_selected_again_where_less_is_left_than_was_chosen(tmp_path):
    write_shard(tmp_path / "in", 0, planted=0)
    out = tmp_path / "out"
    curate(tmp_path / "in", out, token_ratio=0.8)
    told = forget(out, domains=[f"site{number}.example" for number in range(4)])
    assert told["forgotten"]["documents"] >= 24 and chosen_of(out)
    assert not any(url.startswith(f"https://site{number}.") for url in chosen_of(out) for number in range(4))


def test_what_names_nothing_makes_no_release(made):
    folder, _, _ = made
    out = folder / "out"
    before = list_versions(str(out))
    with pytest.raises(InputError, match="none of 1 entry names"):
        forget(out, domains=["com"])
    assert "no document" in forget(out, domains=["nobody.example"])["message"]
    assert "holds nothing of what is named" in forget(out)["message"]
    assert list_versions(str(out)) == before


def test_nothing_to_forget_is_refused(made, tmp_path):
    subprocess.run(["cp", "-r", str(made[0] / "out"), str(tmp_path / "out")], check=True)
    shutil.rmtree(tmp_path / "out" / "forgotten")
    with pytest.raises(ConfigError, match="nothing is to be forgotten"):
        forget(tmp_path / "out")


@pytest.mark.slow
def test_killed_at_ten_moments_it_is_whole(prefect_server, tmp_path):
    out = curated(tmp_path)
    subprocess.run(["cp", "-r", str(out), str(tmp_path / "whole")], check=True)
    began = time.monotonic()
    command = [sys.executable, "-m", "datamask", "forget", "--domains", "bad.example"]
    subprocess.run([*command, str(tmp_path / "whole")], cwd=ROOT, check=True, capture_output=True)
    took = time.monotonic() - began
    expected = sorted(chosen_of(tmp_path / "whole"))
    for moment in range(10):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        task = subprocess.Popen([*command, str(out)], cwd=ROOT, start_new_session=True, **quiet)
        time.sleep(took * (moment + 0.5) / 10)
        os.killpg(task.pid, signal.SIGKILL)
        task.wait()
        assert verify(find_release(str(out))).problems == [] or any(map(is_bad, chosen_of(out)))
    datamask.refresh(out, progress=False)  # what was interrupted is done by the next run, whichever it is
    forget(out, domains=["bad.example"])
    assert sorted(chosen_of(out)) == expected
    assert verify(find_release(str(out))).problems == []


@pytest.mark.slow
def test_files_that_changed_since_the_release_are_known_by_their_content(restored):
    folder = restored(none_planted)
    out = folder / "out"
    before = chosen_of(out)
    first, second = (pq.read_table(folder / "in" / f"s{shard}.parquet").to_pylist() for shard in range(2))
    late = {"url": "https://late.example/1", "text": document(9000, 150)}
    pq.write_table(pa.Table.from_pylist([*first[::-1], late]), folder / "in" / "s0.parquet")
    gone = next(row["url"] for row in first if row["url"] in before)
    told = forget(out, urls=[gone, late["url"]])["forgotten"]  # a document in another place, and one beyond the end
    after = chosen_of(out)
    assert told["documents"] == 2 and gone not in after and late["url"] not in after
    lengths = {row["url"]: len(row["text"]) for row in [*first, *second]}
    assert {url: lengths[url] for url in after} == after
    assert any(row["url"] in after for row in first) and any(row["url"] in after for row in second)
    assert verify(find_release(str(out))).problems == []


def test_what_the_release_holds_goes_though_its_input_has_gone_before(restored):
    folder = restored(none_planted)
    out = folder / "out"
    gone = next(url for url in chosen_of(out) if "/0/" in url)
    rows = [row for row in pq.read_table(folder / "in" / "s0.parquet").to_pylist() if row["url"] != gone]
    pq.write_table(pa.Table.from_pylist(rows), folder / "in" / "s0.parquet")
    assert "message" not in forget(out, urls=[gone]) and gone not in chosen_of(out)
    assert verify(find_release(str(out))).problems == []


@pytest.mark.slow
def test_after_a_rollback_the_advice_of_verify_helps(restored):
    out = restored(one_shard) / "out"
    forget(out, domains=["bad.example"])
    _, last = list_versions(str(out))
    first, _ = roll_back(str(out))[::-1]
    [problem, *_] = verify(find_release(str(out))).problems
    assert first != last and f"datamask forget {out} makes a release without them" in problem
    assert "message" not in forget(out)
    assert find_release(str(out)).version == last and not any(map(is_bad, chosen_of(out)))
    assert "holds nothing of what is named" in forget(out)["message"]


def test_a_damaged_release_is_told_with_what_to_do_and_that_helps(restored):
    folder = restored(one_shard)
    out = folder / "out"
    release = Path(find_release(str(out)).path)
    (release / "decisions" / "s0.parquet").write_bytes(b"damaged")
    with pytest.raises(DamagedFileError, match=f"remove {release} and run `datamask curate` again"):
        forget(out, domains=["bad.example"])
    shutil.rmtree(release)
    curate(folder / "in", out)
    assert not any(map(is_bad, chosen_of(out))) and verify(find_release(str(out))).problems == []
