"""What Prefect's UI shows of a run: progress per stage, the numbers, a row per shard, the plots."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from prefect.artifacts import (
    create_image_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.events import emit_event

from datamask import storage
from datamask.errors import several
from datamask.release.release_folder import Picture
from tasks.progress import Board

TABLE_ROWS = 1000  # of a table artifact; failed shards come first
PICTURE_BYTES = 400_000  # a larger plot would not pass the server's limit on a request


class StageArtifacts:
    """A progress artifact per stage, with the terminal's numbers, brought up to date when asked."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self._shown: dict[str, tuple[UUID, float, str]] = {}

    def update(self) -> None:
        """Writes the stages' progress, where a server shows it."""
        for line in list(self.board.stages.values()):
            percent = round(100 * line.share, 1)
            rows = f"{line.rows:,} rows, " if line.total else ""
            how = f"{line.elapsed:,.1f} s" if line.ended else line.going
            text = f"{line.stage}: {rows}{how}"
            if line.stage not in self._shown:
                artifact = create_progress_artifact(percent, description=text)
                assert isinstance(artifact, UUID)
                self._shown[line.stage] = (artifact, percent, text)
            elif self._shown[line.stage][1:] != (percent, text):
                artifact = self._shown[line.stage][0]
                update_progress_artifact(artifact, percent, description=text)
                self._shown[line.stage] = (artifact, percent, text)


def show_numbers(markdown: str) -> None:
    """The run's numbers, as a table."""
    create_markdown_artifact(markdown, key="curation", description="What was read, selected and left out")


def show_shards(rows: Sequence[Mapping[str, Any]]) -> None:
    """A row for each shard."""
    create_table_artifact(
        [dict(row) for row in rows[:TABLE_ROWS]],
        key="shards",
        description=("1 shard" if len(rows) == 1 else f"{len(rows):,} shards")
        + (f", the first {TABLE_ROWS:,} shown" if len(rows) > TABLE_ROWS else ""),
    )


def show_warnings(sentences: Sequence[str]) -> None:
    """What the report warns of, a line each."""
    if sentences:
        text = "\n".join(f"- {sentence}" for sentence in sentences)
        create_markdown_artifact(text, key="warnings", description="Groups that lose far more than the rest, and junk")


def show_drift(sentences: Sequence[str], out: str, release: str) -> None:
    """An artifact, and an event that automations can hear: `datamask.drift` of the resource `datamask.output.<out>`."""
    if sentences:
        create_markdown_artifact(
            "\n".join(f"- {sentence}" for sentence in sentences),
            key="drift",
            description="New documents unlike the old",
        )
        emit_event(
            "datamask.drift",
            resource={"prefect.resource.id": f"datamask.output.{out}", "prefect.resource.name": out},
            payload={"message": "; ".join(sentences), "release": release},
        )


def show_failures(failures: Sequence[tuple[str, str]]) -> None:
    """The shards and files that failed, each with its error."""
    create_table_artifact(
        [{"failed": where, "cause": cause} for where, cause in failures[:TABLE_ROWS]],
        key="failures",
        description=f"{several(len(failures), 'file or shard', 'files or shards')} that failed",
    )


def show_pictures(release: str, pictures: Sequence[Picture]) -> None:
    """The release's pictures."""
    for picture in pictures:
        with storage.open_input(storage.join(release, picture.path)) as file:
            data = file.read()
        if len(data) <= PICTURE_BYTES:
            kind = "svg+xml" if picture.path.endswith(".svg") else "png"
            url = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
            create_image_artifact(url, description=f"**{picture.title}**. {picture.caption}".strip())


def show_changes(text: str) -> None:
    """What the release changes beside the one before it."""
    create_markdown_artifact(
        text.replace("\n", "\n\n"), key="changes", description="What differs from the last release"
    )


def show_ablation(markdown: str) -> None:
    """An ablation's tables."""
    create_markdown_artifact(markdown, key="ablation", description="Selections of one corpus side by side")
