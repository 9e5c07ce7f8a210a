"""What Prefect's UI shows of a run (progress, numbers, a row per shard, plots), and what automations hear of it."""

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.artifacts import (
    create_image_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.assets import Asset, AssetProperties, add_asset_metadata, materialize
from prefect.client.schemas.objects import State
from prefect.events import emit_event
from prefect.logging import get_run_logger
from prefect.states import Completed
from prefect.utilities.urls import url_for

from datamask import storage
from datamask.errors import several
from datamask.progress import Board, StageProgress
from datamask.release.release_folder import Picture
from tasks.stage import STAGE

TABLE_ROWS = 1000  # of a table artifact; failed shards come first
PICTURE_BYTES = 400_000  # a larger plot would not pass the server's limit on a request
KEY_CHARACTERS = 60  # of an output's path in an artifact's key, its end
ASSET_CHARACTERS = 512  # of an asset's key


def artifact_key(what: str, out: str) -> str:
    """The key of an artifact about an output folder: the UI keeps a history for each.

    Prefect allows small letters, digits and dashes; where that makes two paths alike a hash tells them apart.
    """
    plain = re.sub(r"[^a-z0-9]+", "-", out.lower()).strip("-")
    if plain.replace("-", "/") != out.strip("/") or len(plain) > KEY_CHARACTERS:
        plain = f"{plain[-KEY_CHARACTERS:].strip('-')}-{hashlib.sha256(out.encode()).hexdigest()[:6]}".strip("-")
    return f"{what}-{plain}" if out else what


class RunArtifacts:
    """The artifacts of a run over an output folder."""

    def __init__(self, board: Board, out: str) -> None:
        self.board, self.out = board, out
        self._progress: UUID | None = None
        self._shown: tuple[float, str] | None = None
        self._links: dict[str, str] = {}  # name of an artifact: its page in the UI

    def update(self) -> None:
        """Writes the run's progress, where a server shows it: one artifact, with the terminal's numbers."""
        if not self.board.stages:
            return
        now = (round(100 * self.board.share, 1), progress_text(self.board))
        if self._progress is None:
            self._progress = self._show("progress", create_progress_artifact, *now)
        elif now != self._shown:
            update_progress_artifact(self._progress, now[0], description=now[1])
        self._shown = now

    def show_numbers(self, markdown: str) -> None:
        """The run's numbers, as a table, and links to its other artifacts, which the UI lists in no order.

        The run's log says where they are.
        """
        what = "Start here: what was read, selected and left out, the certificate, and where the release is"
        links = ", ".join(f"[{name}]({link})" for name, link in self._links.items() if link)
        if links:
            title, _, rest = markdown.partition("\n")
            markdown = f"{title}\n\nLook also at: {links}\n{rest}"
        self._show("curation", create_markdown_artifact, markdown, what)
        if link := self._links["curation"]:
            get_run_logger().info("the run's numbers and plots: %s", link)

    def show_shards(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """A row for each shard."""
        shown = f", the first {TABLE_ROWS:,} shown" if len(rows) > TABLE_ROWS else ""
        table = [dict(row) for row in rows[:TABLE_ROWS]]
        what = several(len(rows), "shard") + shown
        self._show("shards", create_table_artifact, table, what)

    def show_warnings(self, sentences: Sequence[str]) -> None:
        """What the report warns of, a line each."""
        if sentences:
            text = "\n".join(f"- {sentence}" for sentence in sentences)
            what = "Groups that lose far more than the rest, and junk"
            self._show("warnings", create_markdown_artifact, text, what)

    def show_drift(self, sentences: Sequence[str], release: str) -> None:
        """An artifact, and an event that automations can hear: `datamask.drift` of `datamask.output.<out>`."""
        if sentences:
            text = "\n".join(f"- {sentence}" for sentence in sentences)
            self._show("drift", create_markdown_artifact, text, "New documents unlike the old")
            emit_event(
                "datamask.drift",
                resource=_output(self.out),
                payload={"message": "; ".join(sentences), "release": release},
            )

    def show_failures(self, failures: Sequence[tuple[str, str]]) -> None:
        """The shards and files that failed, each with its error."""
        table = [{"failed": where, "cause": cause} for where, cause in failures[:TABLE_ROWS]]
        what = f"{several(len(failures), 'file or shard', 'files or shards')} that failed"
        self._show("failures", create_table_artifact, table, what)

    def show_pictures(self, release: str, pictures: Sequence[Picture]) -> None:
        """The release's pictures."""
        for picture in pictures:
            with storage.open_input(storage.join(release, picture.path)) as file:
                data = file.read()
            if len(data) <= PICTURE_BYTES:
                kind = "svg+xml" if picture.path.endswith(".svg") else "png"
                url = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
                name = f"plot-{Path(picture.path).stem}"
                what = f"**{picture.title}**."
                self._show(name, create_image_artifact, url, what)

    def show_changes(self, text: str) -> None:
        """What the release changes beside the one before it."""
        what = "What differs from the last release"
        lines = text.replace("\n", "\n\n")
        self._show("changes", create_markdown_artifact, lines, what)

    def _show(self, name: str, create: Callable[..., Any], shown: Any, what: str) -> UUID:
        """Makes an artifact of this name for the output folder."""
        artifact: UUID = create(shown, key=artifact_key(name, self.out), description=what)
        run = url_for("flow-run", obj_id=artifact) or ""  # Prefect knows no address of an artifact
        self._links[name] = run.replace("runs/flow-run", "artifacts/artifact")
        return artifact


def show_ablation(markdown: str, out: str) -> None:
    """An ablation's tables."""
    what = "Selections of one corpus side by side"
    create_markdown_artifact(markdown, key=artifact_key("ablation", out), description=what)


def progress_text(board: Board) -> str:
    """How far a run is, in Markdown: what is at work, then the stages that are over with their seconds of work."""
    lines = list(board.stages.values())
    working = [f"**{line.stage}**: {'stopped' if board.ended else line.going}" for line in lines if not line.ended]
    over = [f"{line.stage} {_worked(line)}" for line in lines if line.ended]
    ended = f"{several(len(over), 'stage')} over: {', '.join(over)}" if over else ""
    return "\n\n".join([*working, ended])


def _worked(line: StageProgress) -> str:
    if line.is_cached:
        return "cached" if line.cached else "read in place"
    return f"{line.seconds:,.1f} s"


def announce_release(found: Mapping[str, Any], out: str) -> None:
    """Tells of a new release those who train on the output.

    The event `datamask.release.published` of the resource `datamask.output.<out>`, which automations hear; and the
    output as an asset, whose materialization Prefect records with the run that made it.
    """
    facts = {
        "release": found["release"],
        "version": found["version"],
        "report": found["report"],
        "documents": found["documents"]["selected"],
        "tokens": found["tokens"]["selected"],
        "gap": found["certificate"]["gap"],
        "warnings": len(found["warnings"]),
    }
    emit_event("datamask.release.published", resource=_output(out), payload=facts)
    properties = AssetProperties(name=out, description="A dataset curated by datamask; `latest` is its newest release")
    asset = Asset(key=address(out), properties=properties)

    @materialize(asset, by="datamask", name="publish", task_run_name="publish: announce the release", **STAGE)
    def announce() -> State[None]:
        add_asset_metadata(asset, facts)
        return Completed(message=f"{asset.key} has the release {found['version']}")

    announce()


def address(path: str) -> str:
    """A path as a URL that names it anywhere: file:///… where it is on a disk.

    Prefect takes neither % nor what it would stand for, nor more than 512 characters: a hash tells such paths apart.
    """
    url = path if storage.is_remote(path) else f"file://{storage.filesystem(path)[1]}"
    plain = re.sub(r"[^\w./:@=+~$,;!*()-]", "_", url, flags=re.ASCII)
    if plain == url and len(url) <= ASSET_CHARACTERS:
        return url
    return f"{plain[: ASSET_CHARACTERS - 9]}-{hashlib.sha256(url.encode(errors='surrogateescape')).hexdigest()[:8]}"


def _output(out: str) -> dict[str, str]:
    return {"prefect.resource.id": f"datamask.output.{out}", "prefect.resource.name": out}
