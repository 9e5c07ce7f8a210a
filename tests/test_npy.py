"""NumPy's files under threads."""

import gc
import io
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from datamask import npy


@pytest.fixture
def collected_often():
    """Garbage is collected within the parse of a header too, and another thread runs while it is."""

    def elsewhere(_phase, _info):
        time.sleep(1e-5)

    threshold = gc.get_threshold()
    gc.callbacks.append(elsewhere)
    gc.set_threshold(5)
    yield
    gc.set_threshold(*threshold)
    gc.callbacks.remove(elsewhere)


def saved(save, *arguments, **arrays):
    file = io.BytesIO()
    save(file, *arguments, **arrays)
    return file.getvalue()


@pytest.mark.usefixtures("collected_often")
def test_many_threads_read_at_once():
    one, two = np.arange(6.0).reshape(2, 3), np.array([b"ab", b"c"])
    array, named = saved(np.save, one), saved(np.savez, one=one, two=two)

    def read(_):
        assert npy.array_names(io.BytesIO(named)) == ["one", "two"]
        found = npy.load_named(io.BytesIO(named), "two", "one")
        return npy.load_array(io.BytesIO(array)), found["one"], found["two"], list(found)

    with ThreadPoolExecutor(8) as pool:
        for single, first, second, order in pool.map(read, range(2000)):
            assert (single == one).all() and (first == one).all() and (second == two).all()
            assert order == ["two", "one"]


def test_a_name_that_is_not_there():
    with pytest.raises(KeyError, match="three"):
        npy.load_named(io.BytesIO(saved(np.savez, one=np.zeros(1))), "three")
    assert list(npy.load_named(io.BytesIO(saved(np.savez, one=np.zeros(1))))) == ["one"]
