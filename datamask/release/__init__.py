"""Stage 5, publish: filter and merge with DuckDB, export, dataset card, manifest, versions, verification."""

from datamask.release.publication import publish
from datamask.release.release_folder import Picture, Provenance, ReleaseFolder, Staged
from datamask.release.staging import export

__all__ = ["Picture", "Provenance", "ReleaseFolder", "Staged", "export", "publish"]
