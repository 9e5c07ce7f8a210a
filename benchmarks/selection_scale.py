"""Seconds, gap and memory of the relaxation against the number of documents.

    python benchmarks/selection_scale.py 10000 30000 100000 --metric pairwise DiSF

Features are synthetic clusters of 768 dimensions, float16, memory-mapped from a temporary file. With several devices
(`--device cpu cuda`) each selects from the same documents in turn.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import tempfile
import threading
import time
from pathlib import Path

import altair as alt
import numpy as np
import psutil

from datamask import select


def clusters(path: Path, count: int, width: int = 768, groups: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Memory-mapped float16 unit rows around Zipf-distributed centres, and a quality that prefers some centres."""
    generator = np.random.default_rng(0)
    centres = generator.standard_normal((groups, width)).astype(np.float32) / np.sqrt(width)
    share = 1 / np.sqrt(np.arange(1, groups + 1))
    label = generator.choice(groups, count, p=share / share.sum())
    scale = np.arange(1, width + 1, dtype=np.float32) ** -0.3
    scale /= np.sqrt((scale**2).sum())
    rows = np.memmap(path, np.float16, "w+", shape=(count, width))
    for start in range(0, count, 65_536):
        part = slice(start, min(start + 65_536, count))
        size = part.stop - part.start
        block = centres[label[part]] + generator.standard_normal((size, width), dtype=np.float32) * scale
        rows[part] = block / np.linalg.norm(block, axis=1, keepdims=True)
    rows.flush()
    return rows, 0.5 * generator.standard_normal(groups)[label] + generator.standard_normal(count)


def embedded(path: str | None, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The first documents of an .npz with `features` and `quality`; without one, clusters, in memory."""
    if path:
        with np.load(path) as stored:
            return stored["features"][:count], stored["quality"][:count]
    with tempfile.TemporaryDirectory() as folder:
        features, quality = clusters(Path(folder) / "features", count)
        return np.array(features), quality


class Peak:
    """Greatest private memory above the start's, in bytes; mapped files are not counted."""

    def __enter__(self) -> Peak:
        gc.collect()  # what the last run left must not count as the start's
        self.process, self.peak, self.done = psutil.Process(), 0, threading.Event()
        self.start = self._now()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()

    def _now(self) -> int:
        info = self.process.memory_info()
        return info.rss - info.shared

    def _watch(self) -> None:
        while not self.done.wait(0.02):
            self.peak = max(self.peak, self._now() - self.start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("counts", type=int, nargs="*", default=[10_000, 30_000, 100_000])
    parser.add_argument("--metric", nargs="+", default=["pairwise", "DiSF"])
    parser.add_argument("--solver", nargs="+", default=["relaxation"])
    parser.add_argument("--device", nargs="+", default=["auto"])
    parser.add_argument("--repeat", type=int, default=1, help="the quickest of so many runs")
    parser.add_argument("--plot", help="a PNG of seconds against documents, both logarithmic")
    arguments = parser.parse_args()
    points: list[dict[str, float | str]] = []
    print("| documents | metric | solver | device | objective | bound | gap | seconds | seconds, all | GiB beyond |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for count in arguments.counts:
        with tempfile.TemporaryDirectory() as folder:
            features, quality = clusters(Path(folder) / "features", count)
            for metric, solver, device in itertools.product(arguments.metric, arguments.solver, arguments.device):
                total, seconds = float("inf"), float("inf")
                for _ in range(arguments.repeat):
                    began = time.perf_counter()
                    with Peak() as peak:
                        found = select(features, quality, algorithm=metric, solver=solver, device=device)
                    total, seconds = min(total, time.perf_counter() - began), min(seconds, found.seconds)
                bound = f"{found.upper_bound:.5f}" if found.upper_bound is not None else "–"
                gap = f"{100 * found.gap:.3f} %" if found.gap is not None else "–"
                print(
                    f"| {count:,} | {metric} | {solver} | {device} | {found.objective:.5f} | {bound} | {gap} "
                    f"| {seconds:.1f} | {total:.1f} | {peak.peak / 2**30:.2f} |",
                    flush=True,
                )
                points.append({"documents": count, "metric": metric, "solver": solver, "seconds": total})
    if arguments.plot:
        draw(points).save(arguments.plot, scale_factor=2)


def draw(points: list[dict[str, float | str]]) -> alt.Chart:
    scale = alt.Scale(type="log")
    return (
        alt.Chart(alt.Data(values=points), width=420, height=280)
        .mark_line(point=True)
        .encode(
            x=alt.X("documents:Q", scale=scale, axis=alt.Axis(format="~s", tickCount=3)),
            y=alt.Y("seconds:Q", scale=scale, title="seconds"),
            color="metric:N",
            strokeDash="solver:N",
        )
    )


if __name__ == "__main__":
    main()
