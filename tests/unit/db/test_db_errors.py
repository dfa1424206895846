"""What failures of the database driver mean for the call that met them."""

import asyncpg
import pytest

from skep.db.access.errors import (
    GroupGone,
    LeadershipLost,
    LockTimeout,
    NotExecuted,
    OutcomeUnknown,
    RejectedData,
    translate,
)
from skep.model.errors import BadRequest, Defect, NotFound, Refused, Unavailable

KINDS_BY_STATE = {
    "SK404": GroupGone,
    "SK423": LeadershipLost,
    "40001": NotExecuted,  # serialization failure
    "40P01": NotExecuted,  # deadlock
    "23503": NotExecuted,  # something was created on a queue that was just deleted
    "P0002": NotExecuted,  # a row was deleted between two statements
    "55P03": LockTimeout,
    "57014": NotExecuted,  # statement timeout
    "57P01": OutcomeUnknown,  # shutdown or pg_terminate_backend
    "57P02": OutcomeUnknown,  # crash
    "57P03": NotExecuted,  # starting up
    "0A000": NotExecuted,  # the cached plan does not fit any more
    "42883": NotExecuted,  # no such function, at the moment
    "08000": OutcomeUnknown,
    "08003": OutcomeUnknown,
    "08006": OutcomeUnknown,
    "22003": RejectedData,  # number out of range
    "22021": RejectedData,  # a character that text cannot hold
    "23505": RejectedData,  # unique violation
    "23514": RejectedData,  # check violation
    "25006": NotExecuted,  # a standby answers
    "53100": NotExecuted,  # disk full
    "53200": NotExecuted,  # out of memory
    "53300": NotExecuted,  # too many connections
    "54000": RejectedData,  # program limit exceeded
    "58030": NotExecuted,  # input or output error
    "42601": Defect,  # syntax error
    "42P01": Defect,  # no such table
    "P0001": Defect,  # raise exception without a state
    "XX000": NotExecuted,  # a function was made anew under the call
    "XX001": Defect,  # data corrupted
}


def server_error(state, text="what PostgreSQL says"):
    return asyncpg.PostgresError.new({"C": state, "M": text, "S": "ERROR"})


@pytest.mark.parametrize(("state", "kind"), KINDS_BY_STATE.items())
def test_the_state_of_an_error_decides_what_it_means(state, kind):
    assert type(translate(server_error(state))) is kind


def test_the_message_keeps_the_servers_words_and_the_state():
    assert translate(server_error("23505")).message == "what PostgreSQL says (SQLSTATE 23505)"


def test_an_error_without_a_state_is_a_defect():
    assert type(translate(asyncpg.PostgresError("odd"))) is Defect


def test_an_error_of_our_own_stays_what_it_is():
    error = NotExecuted("as it was")

    assert translate(error) is error


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError("reset"),
        BrokenPipeError(),
        TimeoutError(),
        EOFError(),
        asyncpg.InterfaceError("the connection is closed"),
        asyncpg.InternalClientError("another operation is in progress"),
        asyncpg.ConnectionDoesNotExistError("closed in the middle of operation"),
    ],
    ids=repr,
)
def test_a_broken_connection_leaves_the_outcome_unknown(error):
    assert type(translate(error)) is OutcomeUnknown


def test_a_broken_connection_without_words_is_named_by_its_kind():
    assert translate(BrokenPipeError()).message == "BrokenPipeError"


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.exceptions._base.DataError("invalid input for query argument $1"),
        OverflowError("too large"),
        UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_value_that_cannot_be_sent_is_rejected_data(error):
    assert type(translate(error)) is RejectedData


def test_anything_else_is_a_defect_that_names_itself():
    error = translate(ZeroDivisionError("oops"))

    assert type(error) is Defect
    assert error.message == "ZeroDivisionError: oops"


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        (NotExecuted, Unavailable),
        (OutcomeUnknown, Unavailable),
        (RejectedData, BadRequest),
        (GroupGone, NotFound),
        (LeadershipLost, Refused),
    ],
)
def test_kinds_are_what_the_wire_knows(kind, base):
    assert issubclass(kind, base)
