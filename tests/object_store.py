"""A real S3 server (moto's) on loopback, behind a relay that fails on purpose."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

Fault = str | None  # "reset": the connection is cut; "500", "503": the answer; None: handed on

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_MAX_ATTEMPTS": "1",  # botocore's own retries: s3fs and the pipeline have theirs
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
}


class Store:
    """The server's address, the requests it saw, and what to answer to the next ones."""

    def __init__(self, backend: int) -> None:
        self.requests: list[tuple[str, str]] = []
        self.fault: Callable[[int, str, str], Fault] = lambda number, method, path: None
        self._relay = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, backend))
        self._relay.daemon_threads = True
        threading.Thread(target=self._relay.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._relay.server_address[1]}"

    def close(self) -> None:
        self._relay.shutdown()
        self._relay.server_close()


def _handler(store: Store, backend: int) -> type[BaseHTTPRequestHandler]:
    class Relay(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # head and body are two writes: the second waited 40 ms for the first's receipt

        def _relay(self) -> None:
            body = self._body()
            store.requests.append((self.command, self.path))
            fault = store.fault(len(store.requests), self.command, self.path)
            if fault == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
                self.close_connection = True
                return
            if fault:
                self._answer(int(fault), [], b"<Error><Code>InternalError</Code><Message>planned</Message></Error>")
                return
            there = http.client.HTTPConnection("127.0.0.1", backend)
            headers = {name: value for name, value in self.headers.items() if name.lower() != "transfer-encoding"}
            there.request(self.command, self.path, body, headers)
            found = there.getresponse()
            self._answer(found.status, found.getheaders(), found.read())
            there.close()

        def _body(self) -> bytes | None:
            if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                length = int(self.headers.get("Content-Length") or 0)
                return self.rfile.read(length) if length else None
            data = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return data

        def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(name, value)
            head = self.command == "HEAD"
            length = next((value for name, value in headers if name.lower() == "content-length"), None)
            self.send_header("Content-Length", str(length) if head and length else str(len(body)))
            self.end_headers()
            if not head:
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _relay

    return Relay


def clear_clients() -> None:
    """Makes the next access read the environment again."""
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()


@contextmanager
def running() -> Iterator[Store]:
    """A store with the bucket `corpus`, empty, and the environment pointing at it."""
    pytest.importorskip("s3fs")
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    backend = server.get_host_and_port()[1]
    reset = http.client.HTTPConnection("127.0.0.1", backend)
    reset.request("POST", "/moto-api/reset")  # its buckets are the process's, not the server's
    reset.getresponse().read()
    store = Store(backend)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": store.url}.items():
            patch.setenv(name, value)
        import s3fs

        clear_clients()
        s3fs.S3FileSystem().mkdir("corpus")
        try:
            yield store
        finally:
            store.fault = lambda number, method, path: None
            clear_clients()
            store.close()
            server.stop()
