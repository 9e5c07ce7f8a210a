"""The part of the Hugging Face hub that uploads use, on loopback: repositories, large files by content, commits."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

RESOLVE = "/datasets/owner/name/resolve/main/"
LARGE = 2000  # bytes from which a file is stored by its sha256


class Hub:
    def __init__(self):
        self.files: dict[str, bytes] = {}  # of the only repository's main
        self.objects: dict[str, bytes] = {}  # large files by sha256, committed or not
        self.commits: list[str] = []
        self.uploads: list[str] = []  # sha256 of what was sent
        self.private: bool | None = None  # None: the repository is not there yet
        self.fail = lambda method, path: 0  # status to answer instead
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def commit(self, lines):
        for line in lines:
            key, value = line["key"], line["value"]
            if key == "header":
                self.commits.append(value["summary"])
            elif key == "file":
                self.files[value["path"]] = base64.b64decode(value["content"])
            elif key == "lfsFile":
                self.files[value["path"]] = self.objects[value["oid"]]
            elif key == "deletedFile":
                del self.files[value["path"]]


def _entry(path, data):
    blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    entry = {"type": "file", "path": path, "size": len(data), "oid": blob}
    if len(data) >= LARGE:
        digest = hashlib.sha256(data).hexdigest()
        entry |= {"oid": "f" * 40, "lfs": {"oid": digest, "size": len(data), "pointerSize": 130}}
    return entry


def _handler(hub):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if "chunked" in self.headers.get("Transfer-Encoding", ""):
                while size := int(self.rfile.readline(), 16):
                    body += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
            status = hub.fail(self.command, self.path)
            if status:
                return self._answer({"error": "planned"}, status)
            if self.path.startswith(RESOLVE):
                return self._send(hub.files[self.path.removeprefix(RESOLVE)])
            return self._answer(self._route(self.path.split("?")[0], body))

        def _route(self, path, body):
            if path == "/api/repos/create":
                if hub.private is None:
                    asked = json.loads(body)
                    hub.private = asked.get("private") or asked.get("visibility") == "private"
                return {"url": f"{hub.url}/datasets/owner/name", "name": "owner/name"}
            if path == "/api/datasets/owner/name":
                return {"id": "owner/name", "private": hub.private, "siblings": []}
            if re.fullmatch("/api/datasets/owner/name/tree/main", path):
                return [_entry(name, data) for name, data in sorted(hub.files.items())]
            if path == "/api/datasets/owner/name/preupload/main":
                asked = json.loads(body)["files"]
                modes = [{"path": f["path"], "uploadMode": "lfs" if f["size"] >= LARGE else "regular"} for f in asked]
                return {"files": [mode | {"shouldIgnore": False} for mode in modes]}
            if path == "/datasets/owner/name.git/info/lfs/objects/batch":
                found = []
                for item in json.loads(body)["objects"]:
                    action = {"upload": {"href": f"{hub.url}/objects/{item['oid']}"}}
                    found.append(item if item["oid"] in hub.objects else item | {"actions": action})
                return {"transfer": "basic", "objects": found}
            if path.startswith("/objects/"):
                oid = path.rsplit("/", 1)[-1]
                assert hashlib.sha256(body).hexdigest() == oid
                hub.objects[oid] = body
                hub.uploads.append(oid)
                return {}
            if path == "/api/datasets/owner/name/commit/main":
                hub.commit([json.loads(line) for line in body.splitlines() if line])
                return {"success": True, "commitOid": "c" * 40, "commitUrl": f"{hub.url}/datasets/owner/name/commit/c"}
            return {}

        def _answer(self, value, status=200):
            data = json.dumps(value).encode()
            self.send_response_only(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _send(self, data):
            self.send_response_only(200)
            self.send_header("X-Repo-Commit", "c" * 40)
            self.send_header("ETag", hashlib.sha256(data).hexdigest())
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        def log_message(self, format, *args):
            pass

        do_GET = do_HEAD = do_POST = do_PUT = _do

    return Handler


@contextmanager
def running():
    """A hub with an empty repository owner/name, and huggingface_hub pointed at it."""
    from huggingface_hub import constants

    hub = Hub()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "ENDPOINT", hub.url)
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"  # made from ENDPOINT when it is imported
        patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        patch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        patch.setattr(constants, "HF_HUB_OFFLINE", False)
        patch.setenv("HF_TOKEN", "hf_test")
        try:
            yield hub
        finally:
            hub.server.shutdown()
            hub.server.server_close()
