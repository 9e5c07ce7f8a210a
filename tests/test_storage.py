from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask import storage, surroundings
from datamask.errors import (
    DamagedFileError,
    InputError,
    MissingExtraError,
    MissingFileError,
    StorageError,
    TransientError,
    is_retryable,
)
from tests.object_store import Store, clear_clients

SCHEMA = pa.schema([("n", pa.int64())])


def table(count: int, first: int = 0) -> pa.Table:
    return pa.table({"n": range(first, first + count)}, schema=SCHEMA)


# ---------------------------------------------------------------- local


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b" / "file"
    with storage.publish(str(target)) as temporary:
        temporary.write_text("one")
        assert not target.exists() and temporary.parent == target.parent
    assert target.read_text() == "one"
    with pytest.raises(InputError), storage.publish(str(target)) as temporary:
        temporary.write_text("two")
        raise InputError("stop")
    assert target.read_text() == "one" and list(target.parent.iterdir()) == [target]


def test_kill_9_while_writing_leaves_no_file_under_the_name(tmp_path: Path) -> None:
    script = f"""
import os, signal
from datamask import storage, surroundings
with storage.publish({str(tmp_path / "file")!r}) as temporary:
    temporary.write_bytes(bytes(1000))
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[1]).returncode == -9
    (leftover,) = tmp_path.iterdir()
    assert leftover.name.startswith(".file.")
    storage.remove_leftovers(str(tmp_path))
    assert leftover.exists()  # it may be another process's, still at work
    os.utime(leftover, (0, 0))
    (tmp_path / "other.tmp").touch()
    os.utime(tmp_path / "other.tmp", (0, 0))
    storage.remove_leftovers(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["other.tmp"]


def test_bytes_do_not_depend_on_how_the_rows_arrive(tmp_path: Path) -> None:
    whole = storage.write_output(str(tmp_path / "a"), "k", SCHEMA, [table(2500)], row_group_rows=1000)
    parts = [table(1, 0), table(0), table(1998, 1), table(501, 1999)]
    pieces = storage.write_output(str(tmp_path / "b"), "k", SCHEMA, iter(parts), row_group_rows=1000)
    assert Path(whole.path).read_bytes() == Path(pieces.path).read_bytes()
    assert whole.rows == pieces.rows == 2500 and pq.ParquetFile(whole.path).metadata.num_row_groups == 3


def test_a_columns_name_may_have_dots(tmp_path: Path) -> None:
    table = pa.table(
        {"meta.url": ["a", "b"], "meta.score": [0.5, 1.5], "meta": [{"by": 1.5}, {"by": 2.5}], ".": [1, 2]}
    )
    path = tmp_path / "dots.parquet"
    storage.write_output(str(path), "key", table.schema, [table])
    assert storage.read_table(str(path)).equals(table)
    group = pq.ParquetFile(path).metadata.row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    assert [column.path_in_schema for column in columns if not column.is_stats_set] == ["meta.score"]


def test_an_output_is_found_by_its_key_alone(tmp_path: Path) -> None:
    url = str(tmp_path / "out.parquet")
    assert storage.find_output(url, "k") is None
    written = storage.write_output(url, "k", SCHEMA, [table(3)], lambda: {"sum": 3})
    found = storage.find_output(url, "k")
    assert found is not None and found.cached and (found.rows, found.facts) == (3, {"sum": 3})
    assert not written.cached and storage.find_output(url, "other") is None
    pq.write_table(table(3), url)  # somebody else's file
    assert storage.find_output(url, "k") is None
    for data in (b"", b"PAR1", Path(url).read_bytes()[:-5]):
        Path(url).write_bytes(data)
        assert storage.find_output(url, "k") is None


def test_a_flipped_byte_is_found_when_the_file_is_read(tmp_path: Path) -> None:
    url = str(tmp_path / "out.parquet")
    storage.write_output(url, "k", SCHEMA, [table(3000)])
    data = bytearray(Path(url).read_bytes())
    column = pq.ParquetFile(url).metadata.row_group(0).column(0)
    for place in [*range(100, 3000, 397), *range(column.data_page_offset + 200, 4 + column.total_compressed_size, 97)]:
        changed = bytearray(data)
        changed[place] ^= 1
        Path(url).write_bytes(changed)
        with pytest.raises(DamagedFileError, match=r"out.parquet: damaged .*remove it and run again"):
            storage.read_table(url)


def test_keys_are_the_same_on_every_machine() -> None:
    assert storage.key("embed", 1, {"b": 1, "a": [None, "ü"]}) == storage.key("embed", 1, {"a": [None, "ü"], "b": 1})
    assert storage.key(1) != storage.key("1") != storage.key(["1"])
    code = "from datamask.storage import key; print(key('x', {'b': 2, 'a': 1}))"
    root = Path(__file__).parents[1]
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, cwd=root, capture_output=True
        )
        for seed in ("1", "2")
    ]
    assert runs[0].stdout == runs[1].stdout and runs[0].stdout.decode().strip() == storage.key("x", {"a": 1, "b": 2})


def test_json_is_checked(tmp_path: Path) -> None:
    url = str(tmp_path / "x.json")
    storage.write_json(url, {"b": 1, "a": "ü"})
    assert storage.read_json(url) == {"b": 1, "a": "ü"} and json.loads(Path(url).read_text()) == {"a": "ü", "b": 1}
    for data in (b"", b"{", b"\xff", b"[" * 100_000):
        Path(url).write_bytes(data)
        with pytest.raises(DamagedFileError, match="x.json: not valid JSON"):
            storage.read_json(url)


def test_what_is_removed_of_a_store_is_a_name_and_no_pattern() -> None:
    for name in ("out[1]", "out1"):
        storage.write_content(f"memory://{name}/work/f", "")
    storage.remove("memory://out[1]/work")
    assert not storage.exists("memory://out[1]/work/f") and storage.exists("memory://out1/work/f")
    with pytest.raises(MissingFileError, match="cannot remove"):
        storage.remove("memory://out[1]/work")


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    absent = str(tmp_path / "absent")
    for call in (storage.read_json, storage.open_input, storage.sha256, storage.read_table):
        with pytest.raises(MissingFileError, match="absent: no such file"):
            call(absent)
    assert not storage.exists(absent) and storage.exists(str(tmp_path))


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot write .*file/x: (Not a directory|File exists); a"):
        storage.write_json(str(tmp_path / "file" / "x"), 1)
    with pytest.raises(StorageError, match="File name too long; choose a shorter name"):
        storage.write_json(str(tmp_path / ("x" * 300)), 1)
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError, match="a file is expected there"):
        storage.write_json(str(tmp_path / "folder"), 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_no_permission_is_named(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    tmp_path.chmod(0o500)
    with pytest.raises(StorageError, match=r"cannot write .*x: no permission; check its owner and mode"):
        storage.write_json(str(tmp_path / "x"), 1)


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    code = f"""
import resource, signal, pyarrow as pa
from datamask import storage, surroundings
from datamask.errors import StorageError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
schema = pa.schema([("n", pa.binary())])
import os
batches = (pa.record_batch([[os.urandom(5000)]], schema=schema) for _ in range(100))
try:
    storage.write_output({str(tmp_path / "x.parquet")!r}, "k", schema, batches, row_group_rows=1)
except StorageError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert "x.parquet: File too large; files there, or of this process (ulimit -f), may not be so large" in done.stdout
    assert not list(tmp_path.iterdir()), done.stderr


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, "No space left on device; free some space"),
        (errno.EROFS, "Read-only file system; choose a place"),
    ],
)
def test_what_the_system_says_while_writing_is_passed_on(tmp_path: Path, number: int, message: str) -> None:
    with pytest.raises(StorageError, match=message), storage.publish(str(tmp_path / "x")) as temporary:
        temporary.write_text("some")
        raise OSError(number, os.strerror(number))
    assert not list(tmp_path.iterdir())


def test_an_unknown_scheme_or_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StorageError, match=r"gone://x: .*valid: a local path, s3://, gs://, hf://"):
        storage.exists("gone://x")
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'datamask\[gcs\]'"):
        storage.exists("gs://bucket/x")


# ---------------------------------------------------------------- s3


def test_outputs_live_on_s3(store: Store) -> None:
    url = "s3://corpus/work/out.parquet"
    assert storage.find_output(url, "k") is None and not storage.exists(url)
    storage.write_output(url, "k", SCHEMA, [table(3)])
    found = storage.find_output(url, "k")
    assert found is not None and found.rows == 3 and storage.exists(url) and storage.exists("s3://corpus/work")
    assert storage.read_table(url).equals(table(3))
    storage.write_json("s3://corpus/work/x.json", {"a": 1})
    storage.write_json("s3://corpus/work/x.json", {"a": 2})
    assert storage.read_json("s3://corpus/work/x.json") == {"a": 2}
    with pytest.raises(MissingFileError, match="s3://corpus/absent: no such file"):
        storage.read_json("s3://corpus/absent")


def test_what_another_process_writes_is_seen(store: Store) -> None:
    fs, path = storage.filesystem("s3://corpus/shared")
    assert not storage.exists("s3://corpus/shared/a") and not fs.glob(f"{path}/*")
    code = "from datamask import storage; storage.write_json('s3://corpus/shared/a', 1)"
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], check=True)
    assert storage.exists("s3://corpus/shared/a") and fs.glob(f"{path}/*") == ["corpus/shared/a"]


@pytest.mark.parametrize("fault", ["reset", "500", "503"])
def test_a_fault_now_and_then_changes_nothing(store: Store, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "4")
    clear_clients()
    store.fault = lambda number, method, path: fault if number % 3 == 1 else None
    url = f"s3://corpus/faults/{fault}.parquet"
    storage.write_output(url, "k", SCHEMA, [table(30)])
    assert storage.read_table(url).equals(table(30))


@pytest.mark.parametrize("fault", ["reset", "500"])
def test_a_store_that_is_down_is_worth_another_try(store: Store, fault: str) -> None:
    storage.write_json("s3://corpus/down/there.json", 1)
    store.fault = lambda number, method, path: fault
    for call in (
        lambda: storage.write_json("s3://corpus/down/x.json", 1),
        lambda: storage.read_json("s3://corpus/down/there.json"),
        lambda: storage.exists("s3://corpus/down/there.json"),
    ):
        with pytest.raises(TransientError, match=r"cannot (read|write) s3://corpus/down/\w+.json now") as caught:
            call()
        assert is_retryable(caught.value)
    store.fault = lambda number, method, path: None
    assert not storage.exists("s3://corpus/down/x.json")


def test_no_such_bucket_and_no_credentials_are_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StorageError, match="cannot write s3://nobody/x"):
        storage.write_json("s3://nobody/x", 1)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", "/nonexistent")
    clear_clients()
    with pytest.raises(StorageError, match=r"(no credentials|no permission).*environment"):
        storage.write_json("s3://corpus/x", 1)


def test_threads_share_the_store(store: Store) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            url = f"s3://corpus/threads/{number}.json"
            storage.write_json(url, number)
            assert storage.read_json(url) == number
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_folder_for_this_user_alone_is_not_taken_from_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name can be foreseen, so whoever comes first could lead it elsewhere or own it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = surroundings.private_folder("x")
    assert folder == surroundings.private_folder("x") and folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    with pytest.raises(StorageError, match="not a folder that you alone can write to; remove it, or set TMPDIR"):
        surroundings.private_folder("x")
    folder.rmdir()
    (tmp_path / "theirs").mkdir()
    folder.symlink_to(tmp_path / "theirs")
    with pytest.raises(StorageError, match="alone can write to"):
        surroundings.private_folder("x")
    folder.unlink()
    folder.touch()
    with pytest.raises(StorageError, match="alone can write to"):
        surroundings.private_folder("x")
    folder.unlink()
    monkeypatch.setattr("os.getuid", lambda: 54321)
    with pytest.raises(StorageError, match="alone can write to"):
        surroundings.private_folder("x")
