"""DATAMASK's published command, its flags unchanged:

    python -m datamask.train_mask --input in.parquet --output out.parquet --device cuda:0 --n_epochs 5000 \\
        --algorithm DiSF --partial 0.1 --max_lr 10 --min_lr 1 --n_rollout 128 --select_ratio 0.3 --init quality \\
        --lamb 0.5

It is `datamask select` with the published method: the policy gradient and its estimator as published, the raw sum of
quality and diversity, near-duplicates kept. Any option of `datamask select` may follow, e.g. --no-published or
--solver relaxation.
"""

from __future__ import annotations

import sys

from datamask.cli import main

PUBLISHED = ("--solver", "policy-gradient", "--published", "--no-calibrate", "--keep-duplicates")

if __name__ == "__main__":
    main(["select", *PUBLISHED, *sys.argv[1:]])
