"""A release as an object: `datamask.Release`.

from datamask import Release

release = Release("out/mine")               # an output folder (its latest release), out/latest, or a release
release.dataset()                           # Hugging Face's datasets if it is installed, else pyarrow's
release.decisions().filter(...)             # what became of every row read
release.certificate["gap"]
"""

from __future__ import annotations

import html
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

import pyarrow as pa

from datamask import storage
from datamask.errors import MissingExtraError
from datamask.release.explain import explain
from datamask.release.merge import QUARANTINED
from datamask.release.release_folder import QUARANTINE, find_release
from datamask.release.summary.facts import summarise, with_statements
from datamask.release.tokens.token_files import TokenOptions, Tokens, verify_tokens, write_tokens
from datamask.release.verify import verify

REPORT = "report.html"


class Release:
    """A published release. Opening one reads its manifest alone."""

    def __init__(self, place: Any, found: Mapping[str, Any] | None = None) -> None:
        """
        :param place: a release's folder, `<out>/latest`, or an output folder or URL.
        :param found: what the run that made it said (warnings, stages' seconds); `run` keeps it.
        :raises InputError: there is no release.
        """
        self._release = find_release(str(place))
        self.path: str = self._release.path
        self.version: str = self._release.version
        self.run: dict[str, Any] = dict(found or {})

    @classmethod
    def of_run(cls, found: Mapping[str, Any]) -> Release:
        """The release that a run made, or the last one where it made none; `run` has the run's numbers.

        :param found: the run's numbers.
        """
        return cls(found.get("release") or found["latest"], found)

    @property
    def manifest(self) -> dict[str, Any]:
        """What manifest.json says: settings, inputs, sha256 of every file. Not to be changed."""
        return self._release.manifest()

    @property
    def settings(self) -> dict[str, Any]:
        """Every setting it was made with."""
        return dict(self.manifest["settings"])

    @property
    def certificate(self) -> dict[str, Any]:
        """The selection's objective, its upper bound and the gap between them; with scope shard, by shard."""
        return dict(self.manifest["provenance"]["certificate"])

    @property
    def counts(self) -> dict[str, Any]:
        """Rows read, selected, not selected, filtered and quarantined (the sum is checked), and tokens."""
        return dict(self.manifest["conservation"]["total"])

    @property
    def report(self) -> str:
        """Where the report's page is."""
        return storage.join(self.path, REPORT)

    def dataset(self, streaming: bool = False, library: Literal["datasets", "pyarrow"] | None = None) -> Any:
        """The selected documents: a `datasets.Dataset` (streaming: an IterableDataset), or a `pyarrow.dataset.Dataset`.

        :param library: None: datasets where it is installed and the release lies on a disk, else pyarrow.
        :raises MissingExtraError: library is datasets, and it is not installed.
        """
        installed = importlib.util.find_spec("datasets") is not None
        if library == "datasets" and not installed:
            raise MissingExtraError("Release.dataset(library='datasets')", "datasets")
        if library == "datasets" or (library is None and installed and not storage.is_remote(self.path)):
            from datasets import load_dataset

            return load_dataset(self.path, split="train", streaming=streaming)
        import pyarrow.dataset as ds  # which loads pandas

        files = [storage.join(self.path, item["path"]) for item in self.manifest["files"]]
        fs, _ = storage.filesystem(self.path)
        paths = [storage.filesystem(file)[1] for file in files if "/data/" in file.removeprefix(self.path)]
        return ds.dataset(paths, format="parquet", filesystem=fs)

    def decisions(self, columns: list[str] | None = None) -> pa.Table:
        """What became of every row read, by shard and row: shard, chunk_id, id, outcome, reason, quality_score, …

        :raises DamagedFileError: a file of them is damaged.
        """
        shards = sorted(self.manifest["conservation"]["shards"])
        return pa.concat_tables([self._release.decisions(shard, columns) for shard in shards])

    def quarantine(self) -> pa.Table:
        """The rows that are no documents: file, row, reason, excerpt."""
        return pa.Table.from_batches(list(self._release.batches(QUARANTINE, QUARANTINED.names)), QUARANTINED)

    def explain(self, document: str) -> list[dict[str, Any]]:
        """Why a document is in, or is not: by its id, SHARD/CHUNK_ID, or FILE:ROW.

        :raises InputError: there is none.
        """
        return [asdict(one) for one in explain(self._release, str(document))]

    def verify(self, against: str | Sequence[str] = (), tokens: str | Sequence[str] = ()) -> list[str]:
        """What is not as it should be; []: every sha256, row, schema and sum is.

        :param against: the corpus, to compare every value with its source.
        :param tokens: folders that `tokens` wrote.
        """
        found = list(verify(self._release, storage.paths_of(against)).problems)
        return found + [
            problem for folder in storage.paths_of(tokens) for problem in verify_tokens(folder, self._release)
        ]

    def tokens(
        self,
        tokenizer: str,
        format: Literal["megatron", "nanoset", "npy"],
        to: str | None = None,
        seed: int = 0,
        end_token: str | None = None,
        file_tokens: int = TokenOptions.file_tokens,
    ) -> Tokens:
        """The documents as a trainer reads them: tokenised, each as often as it was chosen, shuffled over all.

        :param tokenizer: a folder with tokenizer.json, such a file, or a name on the Hugging Face hub.
        :param to: where their folder is made; None: `tokens/` in the output folder.
        :param end_token: ends a document; None: the tokenizer's own.
        :param file_tokens: of a file, about.
        :raises ConfigError: no token ends a document. :raises ModelError: the tokenizer is missing or broken.
        """
        return write_tokens(self._release, tokenizer, TokenOptions(format, seed, end_token, file_tokens), to)

    def summary(self, statements: Mapping[str, str] | None = None, small_enterprise: bool = False) -> dict[str, Any]:
        """What it is made of: domains by bytes, languages, dumps, dates, licences, and what was removed and why.

        :param statements: what only you know, by the names that the setting release.statements has.
        :param small_enterprise: list 5 % of the domains, 1,000 at most, and not 10 %.
        """
        return summarise(with_statements(self.manifest, statements or {}, small_enterprise), self.path)

    def __repr__(self) -> str:
        total = self.counts
        return f"Release({self.path!r}: {total['selected']:,} of {total['rows']:,} documents)"

    def _repr_html_(self) -> str:
        """The report, for a notebook: in a frame of its own, for its styles and scripts are those of a page."""
        try:
            with storage.open_input(self.report) as file:
                page = file.read().decode()
        except FileNotFoundError:
            return f"<pre>{html.escape(repr(self))}</pre>"
        frame = '<iframe style="width:100%;height:600px;border:0" sandbox="allow-scripts"'
        return f'{frame} srcdoc="{html.escape(page, quote=True)}"></iframe>'
