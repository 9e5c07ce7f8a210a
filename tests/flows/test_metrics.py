"""Metrics of a run: rows, seconds, bytes and gap, sent to the collector that OTEL_ variables name, if they do."""

import logging
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest

from datamask.progress import Board
from flows.metrics import RunMetrics, measured, wanted

DOCUMENTS = {"read": 10, "selected": 4, "not_selected": 3, "filtered": {"a": 1, "b": 1}, "quarantined": {"c": 1}}
RELEASE = SimpleNamespace(
    manifest=lambda: {"sources": [{"path": "p", "bytes": 7}, {"path": "p", "bytes": 7}], "files": [{"bytes": 5}]}
)
FOUND = {"documents": DOCUMENTS, "certificate": {"gap": 0.25}}


def board():
    made = Board()
    made.begin("index", shards=1, total=10)
    made.complete("index", "a", 10, seconds=2.5, cached=False)
    return made


def test_what_a_run_tells():
    sdk = pytest.importorskip("opentelemetry.sdk.metrics")
    export = pytest.importorskip("opentelemetry.sdk.metrics.export")
    reader = export.InMemoryMetricReader()
    metrics = RunMetrics(board(), "out/a", sdk.MeterProvider([reader]))

    def read():
        data = reader.get_metrics_data()
        return {
            (metric.name, *(value for name, value in sorted(point.attributes.items()) if name != "output")): point.value
            for metric in data.resource_metrics[0].scope_metrics[0].metrics
            for point in metric.data.data_points
            if point.attributes["output"] == "out/a"
        }

    stage = {("datamask.stage.rows", "index"): 10, ("datamask.stage.seconds", "index"): 2.5}
    assert read() == stage
    metrics.tell(FOUND, RELEASE)
    outcomes = {"read": 10, "selected": 4, "not_selected": 3, "filtered": 2, "quarantined": 1}
    rows = {("datamask.run.rows", name): number for name, number in outcomes.items()}
    sizes = {("datamask.run.bytes", "input"): 7, ("datamask.run.bytes", "release"): 5}
    assert read() == {**stage, **rows, **sizes, ("datamask.run.gap",): 0.25}


def test_a_collector_receives_them_and_none_is_asked_without_its_variable(monkeypatch, capsys):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http.metric_exporter")
    protobuf = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
    received = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            received.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    with measured(board(), "out") as metrics:
        assert metrics is None
    server = HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "nightly")
    with measured(board(), "out") as metrics:
        metrics.tell(FOUND, RELEASE)
    server.shutdown()
    server.server_close()
    assert not capsys.readouterr().err
    monkeypatch.setattr("flows.metrics.END", 100)
    monkeypatch.setattr("flows.metrics.get_run_logger", lambda: logging.getLogger("a run's"))
    with measured(board(), "out"):
        pass
    assert "were not sent: the collector at OTEL_EXPORTER_OTLP_ENDPOINT=" in capsys.readouterr().err
    path, body = received[-1]
    sent = protobuf.ExportMetricsServiceRequest.FromString(body).resource_metrics[0]
    assert path == "/v1/metrics"
    assert {"key": "service.name", "value": "nightly"} in [
        {"key": pair.key, "value": pair.value.string_value} for pair in sent.resource.attributes
    ]
    assert {metric.name for metric in sent.scope_metrics[0].metrics} == {
        "datamask.stage.rows", "datamask.stage.seconds", "datamask.run.rows", "datamask.run.bytes", "datamask.run.gap"
    }  # fmt: skip
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert wanted() == ""
