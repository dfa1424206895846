"""Read segments from a standby, once it has replayed what was planned on the primary.

Positions are taken and spans are planned on the primary, so that a reader sees the same messages
wherever it reads them. Tasks then read the bodies from the standby: it has replayed the log of the
primary as far as that had written it when it planned. Where it has not within a bound, tasks read
from the primary, or fail if they were told to.
"""

import logging
import time
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from skep.model.errors import Refused, Unavailable
from skep.settings import redacted_url
from skep.spark.runtime.postgres import Database, database
from skep.spark.source.options import ReadOptions

WRITTEN: Final = (
    "select pg_current_wal_insert_lsn()::text as lsn, skep.current_timeline() as timeline, "
    "skep.system_identity() as system"
)
REPLAYED: Final = (
    "select pg_is_in_recovery() as is_standby, skep.system_identity() as system, "
    "(pg_last_wal_replay_lsn() - '0/0')::bigint as replayed, ($1::text::pg_lsn - '0/0')::bigint "
    "as wanted, min_recovery_end_timeline as timeline from pg_control_recovery()"
)
PAUSE_S: Final = 0.05
AVOIDED_S: Final = 60.0
"""How long a standby that could not be read is not waited for again."""

_avoided_until: Final[dict[str, float]] = {}
_logger: Final = logging.getLogger(__name__)


class StandbyNotReady(Refused):
    """A standby cannot be read from, and nothing else may be."""


class Written(NamedTuple):
    """How far the primary had written its log when reads were planned."""

    lsn: str
    timeline: int
    system: str


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a standby cannot be read from."""

    why: str
    may_pass: bool
    """Waiting may help."""


def obstacle_of(state: dict[str, Any], written: Written) -> Obstacle | None:
    """Return what keeps a server in this state from being read; None if it has what was planned."""
    if state["system"] != written.system:
        return Obstacle("it belongs to another database than the option url", may_pass=False)
    if not state["is_standby"]:
        return Obstacle("it is no standby, or was promoted", may_pass=False)
    if state["timeline"] != written.timeline:
        # It may have replayed what a primary wrote that another one has replaced since.
        return Obstacle(
            f"it follows timeline {state['timeline']}, the primary is on {written.timeline}",
            may_pass=True,
        )
    behind = state["wanted"] - state["replayed"]
    return Obstacle(f"it is {behind:,} bytes behind", may_pass=True) if behind > 0 else None


def written_by_primary(options: ReadOptions) -> Written | None:
    """Return how far a standby has to come for what is planned now; None to read the primary.

    Waits for it, so that tasks seldom have to. Raises `StandbyNotReady`.
    """
    if options.read_url is None:
        return None
    (row,) = database(options.url, options.statement_timeout_s).rows(WRITTEN)
    written = Written(row["lsn"], row["timeline"], row["system"])
    return None if _ready_standby(options, written) is None else written


def database_to_read(options: ReadOptions, written: Written | None) -> Database:
    """Return where a task reads its segments; raise `StandbyNotReady`."""
    standby = None if written is None else _ready_standby(options, written)
    return standby or database(options.url, options.statement_timeout_s)


def _ready_standby(options: ReadOptions, written: Written) -> Database | None:
    """Wait until the standby can be read; return None if the primary is to be read instead."""
    url = options.read_url or ""
    is_required = options.read_fallback == "fail"
    if not is_required and time.monotonic() < _avoided_until.get(url, 0):
        return None
    standby = database(url, options.statement_timeout_s, patience_s=0)
    giving_up_at = time.monotonic() + options.read_timeout_s
    while True:
        try:
            (state,) = standby.rows(REPLAYED, written.lsn)
        except Unavailable as error:
            obstacle = Obstacle(error.message, may_pass=False)
        else:
            obstacle = obstacle_of(state, written)
        if obstacle is None:
            return standby
        if not obstacle.may_pass or time.monotonic() >= giving_up_at:
            break
        time.sleep(PAUSE_S)
    waited = f" after {options.read_timeout_s:g} s" if obstacle.may_pass else ""
    said = f"The standby {redacted_url(url)} cannot be read{waited}: {obstacle.why}."
    if is_required:
        raise StandbyNotReady(
            f"{said} Raise the option readTimeout, or set readFallback to primary"
        )
    _avoided_until[url] = time.monotonic() + AVOIDED_S
    _logger.warning("%s Reading from the primary.", said)
    return None
