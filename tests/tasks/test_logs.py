"""A user's error has no trace in a run's log; a defect has."""

import logging
import sys

import pytest

from datamask.errors import ConfigError
from tasks.logs import LOGGERS, PlainUserErrors, tell_errors_plainly


def record(error, message="Encountered exception: %r"):
    try:
        raise error
    except Exception:
        return logging.LogRecord("x", logging.ERROR, "f", 1, message, (error,), sys.exc_info())


def test_a_users_error_is_told_in_its_own_words():
    found = record(ConfigError("filter.where: unknown column langu"))
    assert PlainUserErrors().filter(found) and found.exc_info is None
    assert found.getMessage() == "ConfigError: filter.where: unknown column langu"


def test_a_users_error_is_told_once():
    again = "Engine execution exited with unexpected exception"
    assert not PlainUserErrors().filter(record(ConfigError("filter.where"), again))
    assert PlainUserErrors().filter(record(ZeroDivisionError("x"), again))


def test_a_defect_keeps_its_trace():
    found = record(ZeroDivisionError("x"))
    assert PlainUserErrors().filter(found) and found.exc_info


@pytest.mark.parametrize("name", LOGGERS)
def test_the_filter_is_there_once(name):
    tell_errors_plainly()
    tell_errors_plainly()
    assert sum(isinstance(found, PlainUserErrors) for found in logging.getLogger(name).filters) == 1
