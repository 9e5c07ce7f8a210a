"""A run's numbers for OpenTelemetry: rows, seconds, bytes and the gap, where the OTEL_ variables name a collector.

    pip install 'datamask[otel]'; export OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318
    datamask curate --input 'dumps/*.parquet' --output out/curated

They are sent while the run is at it, every OTEL_METRIC_EXPORT_INTERVAL milliseconds (60,000), and at its end.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
from prefect.logging import get_run_logger

from datamask.progress import Board
from datamask.release.release_folder import ReleaseFolder

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
END = 5_000  # milliseconds that a run waits at its end for a collector
UNSENT = "the last metrics were not sent: the collector at {}={} did not take them"
MISSING = "no metrics are sent: {} is set, and an optional package is missing; pip install 'datamask[otel]'"


def wanted() -> str:
    """The variable that names a collector; empty: metrics are off."""
    off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or os.environ.get("OTEL_METRICS_EXPORTER") == "none"
    return "" if off else next((name for name in ENDPOINTS if os.environ.get(name)), "")


class RunMetrics:
    """The gauges of a run over an output folder, an attribute of each."""

    def __init__(self, board: Board, out: str, provider: MeterProvider) -> None:
        self._board, self._out = board, out
        self._rows: dict[str, int] = {}  # by what became of them; empty until the run knows
        self._bytes: dict[str, int] = {}
        self._gap: float | None = None
        meter = provider.get_meter("datamask")
        gauge = meter.create_observable_gauge
        rows, seconds = partial(self._stages, "rows"), partial(self._stages, "seconds")
        gauge("datamask.stage.rows", [rows], "{row}", "Rows that a stage is through with")
        gauge("datamask.stage.seconds", [seconds], "s", "Seconds that a stage's workers have worked")
        gauge("datamask.run.rows", [self._run_rows], "{row}", "Rows by what became of them; they add up to `read`")
        gauge("datamask.run.bytes", [self._run_bytes], "By", "Bytes of the input's files and of the release's")
        gauge("datamask.run.gap", [self._run_gap], "1", "Share of the bound that the selection is below it, at most")

    def tell(self, found: Mapping[str, Any], release: ReleaseFolder) -> None:
        """The run's own numbers, when they are known."""
        documents, manifest = found["documents"], release.manifest()
        self._rows = {name: documents[name] for name in ("read", "selected", "not_selected")} | {
            kind: sum(documents[kind].values()) for kind in ("filtered", "quarantined")
        }
        self._bytes = {
            "input": sum({source["path"]: source["bytes"] for source in manifest["sources"]}.values()),
            "release": sum(file["bytes"] for file in manifest["files"]),
        }
        self._gap = found["certificate"]["gap"]

    def _stages(self, field: str, options: CallbackOptions) -> Iterable[Observation]:
        return [self._seen(getattr(line, field), stage=line.stage) for line in self._board.stages.values()]

    def _run_rows(self, options: CallbackOptions) -> Iterable[Observation]:
        return [self._seen(number, outcome=outcome) for outcome, number in self._rows.items()]

    def _run_bytes(self, options: CallbackOptions) -> Iterable[Observation]:
        return [self._seen(number, of=what) for what, number in self._bytes.items()]

    def _run_gap(self, options: CallbackOptions) -> Iterable[Observation]:
        return [] if self._gap is None else [self._seen(self._gap)]

    def _seen(self, value: float, **attributes: str) -> Observation:
        return Observation(value, {"output": self._out, **attributes})


@contextmanager
def measured(board: Board, out: str) -> Iterator[RunMetrics | None]:
    """The metrics of the run inside, which are sent to the collector; None where there is none to send them to."""
    if not (variable := wanted()):
        yield None
        return
    try:
        sdk = import_module("opentelemetry.sdk.metrics")
        export = import_module("opentelemetry.sdk.metrics.export")
        exporter = import_module("opentelemetry.exporter.otlp.proto.http.metric_exporter")
    except ModuleNotFoundError:
        _warn(MISSING.format(variable))
        yield None
        return
    collector = exporter.OTLPMetricExporter()
    send, last = collector.export, [None]

    def send_and_see(*batch: Any, **options: Any) -> Any:
        last[:] = [None]  # it may be waiting still when the run ends
        last[:] = [send(*batch, **options)]
        return last[0]

    collector.export = send_and_see
    provider = sdk.MeterProvider([export.PeriodicExportingMetricReader(collector)])
    try:
        yield RunMetrics(board, out, provider)
    finally:
        provider.shutdown(END)
        if board.stages and last != [export.MetricExportResult.SUCCESS]:
            _warn(UNSENT.format(variable, os.environ[variable]))


def _warn(said: str) -> None:
    get_run_logger().warning(said)
    print(f"datamask: warning: {said}", file=sys.stderr, flush=True)
