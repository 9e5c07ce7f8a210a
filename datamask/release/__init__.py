"""Stage 5, publish: filter and merge with DuckDB, export, dataset card, manifest, versions, verification."""

from datamask.release.filters import check_filters, filter_corpus
from datamask.release.layout import Picture, Provenance, Release, Staged
from datamask.release.publication import publish
from datamask.release.staging import export

__all__ = ["Picture", "Provenance", "Release", "Staged", "check_filters", "export", "filter_corpus", "publish"]
