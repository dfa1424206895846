"""Answers for code that fails by a bug, where a client waits and no caller is left to notice."""

import logging
from collections.abc import Callable

from skep.model.errors import Defect, SkepError

log = logging.getLogger(__name__)


def error_of(step: Callable[[], object]) -> SkepError | None:
    """Do something, and return why it failed, if it did. A bug is logged with its stack."""
    try:
        step()
    except SkepError as error:
        # Its frames hold the request that may hold it, and cycles are collected rarely.
        return error.with_traceback(None)
    except Exception:
        log.exception("a defect failed a request")
        return Defect()
    return None
