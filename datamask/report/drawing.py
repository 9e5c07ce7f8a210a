"""What a report has drawn: places on the map, and pictures. Both libraries take a second each to load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from datamask.report.charts import PICTURE


def place_documents(features: npt.NDArray[np.float32], seed: int) -> npt.NDArray[np.float32]:
    """Where documents lie on the paper's map, (n, 2): t-SNE of the first 50 principal components of features (n, d)."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    if not np.ptp(features, axis=0).any():  # of one place alone scikit-learn makes NaN, and dies of it
        return np.zeros((len(features), 2), np.float32)
    perplexity = min(30.0, (len(features) - 1) / 3)
    with threadpool_limits(1):  # reproducible, and at this size threads cost more than they bring
        reduced = PCA(min(50, *features.shape), random_state=seed).fit_transform(features)
        map_ = TSNE(init="pca", perplexity=perplexity, max_iter=500, angle=0.8, random_state=seed)
        return map_.fit_transform(reduced)


def draw_png(specification: Mapping[str, Any]) -> bytes:
    """A PNG of the Vega-Lite specification, twice its nominal size so that it is sharp. Opens no network connection."""
    from vl_convert import vegalite_to_png

    return vegalite_to_png(dict(specification), scale=2, config=PICTURE, allowed_base_urls=[])
