"""Filter expressions and configurations, mutated: a message or a result, never a crash, a hang, or a file touched.

benchmarks/fuzz_release.py runs the same with as many examples as asked.
"""

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.release.fuzz import Watch, check_configuration, configurations, expressions, try_expression


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watched")
    (folder / "secret.txt").write_text("secret")
    watch = Watch(folder)
    yield folder, watch
    watch.close()


def test_the_watch_sees_what_it_must(watched):
    folder, watch = watched
    (folder / "secret.txt").read_text()
    assert "secret.txt" in watch.events()
    (folder / "new").touch()
    assert "new" in watch.events()
    assert watch.events() == []


@hypothesis_settings(deadline=None, max_examples=120, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_expressions(watched, data):
    folder, watch = watched
    try_expression(data.draw(expressions(folder / "secret.txt")), watch)


@hypothesis_settings(deadline=None, max_examples=80, suppress_health_check=list(HealthCheck))
@given(content=configurations())
def test_configurations(watched, content):
    folder, watch = watched
    check_configuration(content, folder, watch)
