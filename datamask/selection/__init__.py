"""Which documents to keep: quality and diversity maximised together.

    from datamask import select
    chosen = select(features, quality, select_ratio=0.1, lamb=0.5, algorithm="DiSF")

Read in this order: `problem` (pool, budget, limits, objective, and the answer), `metrics` (what is maximised),
`solvers` (how), `arrays` (the call above), `driver`, `groups` and `cover` (shards that select jointly), `stage` (the
pipeline's stage functions). `paper` has the paper's own method and what the solver is compared with.
"""
