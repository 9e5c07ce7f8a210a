"""Stage 5, publish: filter and merge with DuckDB, export, dataset card, manifest, versions, verification."""
