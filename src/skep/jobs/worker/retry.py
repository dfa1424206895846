"""Decide what becomes of a job whose attempt failed: run again later, or fail with its chain.

    raises Reschedule             runs again at the time it asks for; counts as no failure
    raises Fail                   fails, even if attempts are left
    raises anything else          runs again after the delay of the job's `Retry` policy, until
                                  `max_attempts` failures; then it fails

The result is a settlement, which `job_settle` writes. Attempts lost with their worker are counted
by `job_reap`, with the same limit; `chain_retry` lets a chain that has failed go on.
"""

import random
import traceback
from typing import Final

from skep.jobs.declare.declaration import Retry
from skep.jobs.errors import Fail, Reschedule
from skep.jobs.store import Claimed, Settlement

ERROR_LENGTH_MAX: Final = 10_000


def settle_failure(
    claimed: Claimed, error: Exception, policy: Retry, chance: random.Random
) -> Settlement:
    """Return what becomes of a job whose handler raised an exception."""
    if isinstance(error, Reschedule):
        delay_s = error.after.total_seconds() if error.after is not None else None
        return Settlement(*claimed.token, "rescheduled", delay_s=delay_s, at=error.at)
    text = describe_error(error)
    failures = claimed.failures + 1
    if isinstance(error, Fail) or failures >= claimed.max_attempts:
        return Settlement(*claimed.token, "failed", error=text)
    delay_s = policy.delay_s(failures, chance)
    return Settlement(*claimed.token, "retry", error=text, delay_s=delay_s)


def describe_error(error: BaseException) -> str:
    """Return the stack of an error, or its end if it is long, in characters that can be stored."""
    text = "".join(traceback.format_exception(error))[-ERROR_LENGTH_MAX:]
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
