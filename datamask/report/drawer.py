"""What the report has done by processes of their own, which run this file: places on the map, and pictures.

The libraries take a second each to load and hold the interpreter's lock: `drawing.Drawing` begins the processes early.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

EMPTY = {"data": {"values": [{"a": 1}]}, "mark": "bar", "encoding": {"x": {"field": "a", "type": "quantitative"}}}


def place_documents(features: npt.NDArray[np.float32], seed: int) -> npt.NDArray[np.float32]:
    """Where documents lie on the paper's map, (n, 2): t-SNE of the first 50 principal components of features (n, d)."""
    from sklearn.decomposition import PCA  # seconds to load, which the process that asks does not need
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    if not np.ptp(features, axis=0).any():  # of one place alone scikit-learn makes NaN, and dies of it
        return np.zeros((len(features), 2), np.float32)
    perplexity = min(30.0, (len(features) - 1) / 3)
    with threadpool_limits(1):  # reproducible, and at this size threads cost more than they bring
        reduced = PCA(min(50, *features.shape), random_state=seed).fit_transform(features)
        map_ = TSNE(init="pca", perplexity=perplexity, max_iter=500, angle=0.8, random_state=seed)
        return map_.fit_transform(reduced)


def draw_picture(specification: Mapping[str, Any], options: Mapping[str, Any]) -> bytes:
    from vl_convert import vegalite_to_png

    return vegalite_to_png(dict(specification), **options)


def _serve(name: str) -> None:
    """Answers with one of these functions what is asked on stdin, until it closes."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    function: Callable[..., Any] = draw_picture if name == "draw_picture" else place_documents
    if function is draw_picture:
        draw_picture(EMPTY, {})
    else:
        sys.modules["pandas"] = None  # type: ignore[assignment]  # scikit-learn would load it where it is installed
        import sklearn.manifold  # noqa: F401

        del sys.modules["pandas"]
    while True:
        try:
            arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(function(*arguments), answers)
        answers.flush()


if __name__ == "__main__":
    _serve(sys.argv[1])
