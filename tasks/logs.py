"""What stands in the logs of flow and task runs: a user's error in its own words, without a trace that helps nobody."""

from __future__ import annotations

import logging

from datamask.errors import DatamaskError

LOGGERS = ("prefect.flow_runs", "prefect.task_runs")
AGAIN = "Engine execution exited"  # Prefect's second record of the error that a flow run ended in


class PlainUserErrors(logging.Filter):
    """Takes the traceback off a record about a DatamaskError: the message says what, where and what to do."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is kept; it is shorter where a user's mistake is told, and dropped where it was told."""
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if isinstance(error, DatamaskError):
            if str(record.msg).startswith(AGAIN):
                return False
            record.msg, record.args = f"{type(error).__name__}: {error}", ()
            record.exc_info = record.exc_text = None
        return True


def tell_errors_plainly() -> None:
    """From now on in this process; a second call changes nothing."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(found, PlainUserErrors) for found in logger.filters):
            logger.addFilter(PlainUserErrors())
