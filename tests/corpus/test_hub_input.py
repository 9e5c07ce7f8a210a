"""Reading from hf://: huggingface_hub's own file system against the hub's protocol on loopback."""

import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask.corpus.shards import plan_shards
from datamask.errors import InputError
from tests.corpus import build

COMMIT = "c" * 40


class Hub:
    """The data set owner/name, read-only: info, listings, files by range. `asked` are the byte ranges served."""

    def __init__(self, files: dict[str, bytes]):
        self.files = files
        self.asked: list[tuple[str, int]] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _do(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                path = unquote(self.path.split("?")[0])
                if match := re.fullmatch(r"/datasets/owner/name/resolve/[^/]+/(.+)", path):
                    return self._file(match[1])
                found = hub.route(path, body, self.headers.get("Content-Type") or "")
                if found is None:
                    return self._answer(b"{}", 404, {"X-Error-Code": "EntryNotFound"})
                return self._answer(json.dumps(found).encode())

            def _file(self, name):
                data = hub.files.get(name)
                if data is None:
                    return self._answer(b"{}", 404, {"X-Error-Code": "EntryNotFound"})
                headers = {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": COMMIT}
                status = 200
                if span := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or ""):
                    first, last = int(span[1]), min(int(span[2]), len(data) - 1)
                    headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
                    data, status = data[first : last + 1], 206
                if self.command == "GET":
                    hub.asked.append((name, len(data)))
                return self._answer(data, status, headers)

            def _answer(self, data, status=200, headers=None):
                self.send_response_only(status)
                for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            def log_message(self, format, *args):
                pass

            do_GET = do_POST = do_HEAD = _do

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def route(self, path, body, kind):
        base = "/api/datasets/owner/name"
        if path in (base, f"{base}/revision/main"):
            return {"id": "owner/name", "sha": COMMIT, "private": False, "siblings": []}
        if path.startswith(f"{base}/paths-info/"):
            paths = json.loads(body)["paths"] if "json" in kind else parse_qs(body.decode())["paths"]
            return [entry for name in paths for entry in self.entries("") if entry["path"] == name]
        if match := re.fullmatch(f"{base}/tree/[^/]+/?(.*)", path):
            return [entry for entry in self.entries(match[1]) if entry["path"] != match[1]] or None
        return None

    def entries(self, under):
        found = {}
        for name, data in sorted(self.files.items()):
            parts = name.split("/")
            for depth in range(1, len(parts)):
                folder = "/".join(parts[:depth])
                found[folder] = {"type": "directory", "path": folder, "size": 0, "oid": "0" * 40}
            found[name] = {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
        return [entry for entry in found.values() if entry["path"].startswith(f"{under}/" if under else "")]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    from huggingface_hub import HfFileSystem, constants

    rows = build.rows(40)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows[:30]), sink)
    lines = "".join(json.dumps(row) + "\n" for row in rows[30:]).encode()
    found = Hub({"data/D/000.parquet": sink.getvalue().to_pybytes(), "data/E/001.jsonl": lines, "README.md": b"# x"})
    monkeypatch.setattr(constants, "ENDPOINT", found.url)
    resolve = found.url + "/{repo_id}/resolve/{revision}/{filename}"  # made from ENDPOINT when it is imported
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", resolve)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    HfFileSystem.clear_instance_cache()
    yield found
    HfFileSystem.clear_instance_cache()
    found.server.shutdown()
    found.server.server_close()


@pytest.mark.parametrize("given", ["hf://datasets/owner/name", "hf://datasets/owner/name/data/*/*"])
def test_a_data_set_is_read(tmp_path, hub, given):
    rows = build.read(tmp_path, given, columns=["text", "id"])
    assert sorted(row["id"] for row in rows) == sorted(f"doc-{n}" for n in range(40))
    assert {row["text"] for row in rows} == {row["text"] for row in build.rows(40)}


def test_a_second_plan_asks_for_no_content(tmp_path, hub):
    first, _, _ = build.plan(tmp_path, "hf://datasets/owner/name")
    hub.asked.clear()
    again, _, _ = build.plan(tmp_path, "hf://datasets/owner/name")
    assert again == first
    assert not [name for name, _ in hub.asked if name.endswith(".jsonl")]


def test_other_content_is_another_shard(tmp_path, hub):
    first, config, work = build.plan(tmp_path, "hf://datasets/owner/name/data/E/001.jsonl")
    hub.files["data/E/001.jsonl"] += b'{"text": "one more"}\n'
    second = plan_shards(config.corpus, work)
    assert second.shards[0].fingerprint != first.shards[0].fingerprint


def test_what_is_not_there_is_said(tmp_path, hub):
    with pytest.raises(InputError, match=r"hf://datasets/owner/name/none.*matches no file"):
        build.plan(tmp_path, "hf://datasets/owner/name/none/*.parquet")
