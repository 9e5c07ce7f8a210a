"""Stage 5, publish: filter and merge with DuckDB, export, dataset card, manifest, versions, verification."""

from datamask.release.layout import Picture, Provenance, Release, Staged

__all__ = ["Picture", "Provenance", "Release", "Staged"]
