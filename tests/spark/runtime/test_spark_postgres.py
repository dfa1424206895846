"""The connection of Spark's processes: results, and causes in one line."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from skep.model.errors import SkepError, Unavailable
from skep.spark.runtime.postgres import CannotRead, Connection, database, forget_connections

LOCK = 4711
WAITS = "select count(*) from pg_locks where locktype = 'advisory' and not granted"


@pytest.fixture
def open_database(database_url):
    yield lambda timeout_s=30.0: database(database_url, timeout_s)
    forget_connections()


def cause(run):
    with pytest.raises(SkepError) as failure:
        run()
    assert "\n" not in failure.value.message
    assert failure.value.__cause__ is None
    return failure.value


def test_parameters_are_texts_and_rows_are_dictionaries(open_database):
    rows = open_database().rows("select $1::text::int + 1 as n, $2 as t", "41", None)

    assert rows == [{"n": 42, "t": None}]


def test_results_stream_in_batches(open_database):
    sql = "select n, repeat('x', 1000) as filler from generate_series(1, 10000) n"

    batches = list(open_database().stream(sql))

    assert len(batches) > 1
    assert sum(batch.num_rows for batch in batches) == 10_000


def test_a_connection_is_used_again(open_database):
    pid = "select pg_backend_pid() as pid"

    assert open_database().rows(pid) == open_database().rows(pid)


def test_an_error_of_one_thread_leaves_the_statement_of_another_alone(open_database, writer):
    writer.value("select pg_advisory_lock($1)", LOCK)
    wait = f"select pg_advisory_xact_lock({LOCK})::text, pg_backend_pid() as pid"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: open_database().rows(wait))
        while not writer.value(WAITS):
            assert not waiting.done()
        assert isinstance(cause(lambda: open_database().rows("select 1 / 0")), CannotRead)
        assert open_database().rows("select 1 as n") == [{"n": 1}]
        writer.value("select pg_advisory_unlock($1)", LOCK)
        (row,) = waiting.result()

    assert open_database().rows("select pg_backend_pid() as pid") == [{"pid": row["pid"]}]


def test_only_who_does_not_need_it_forgoes_durable_commits(open_database, database_url):
    mode = "select current_setting('synchronous_commit') as mode"
    hasty = database(database_url, 30.0, is_durable=False)

    assert hasty.rows(mode) == [{"mode": "off"}]
    assert open_database().rows(mode) == [{"mode": "on"}]


def test_a_result_that_was_not_read_to_its_end_does_not_spoil_the_next(open_database):
    sql = "select n, repeat('x', 1000) as filler from generate_series(1, 10000) n"
    batches = open_database().stream(sql)
    next(batches)
    batches.close()

    assert open_database().rows("select 1 as n") == [{"n": 1}]


def test_a_result_may_be_read_as_slowly_as_spark_takes_it(open_database, writer):
    sql = "select n, repeat('x', 1000) as filler from generate_series(1, 50000) n"
    impatient = open_database(1.0)
    batches = impatient.stream(sql)
    rows = next(batches).num_rows
    writer.value("select pg_sleep(1.5)")  # meanwhile the server cannot send the rest

    assert rows + sum(batch.num_rows for batch in batches) == 50_000
    assert "statementTimeout" in cause(lambda: impatient.rows("select pg_sleep(60)")).message


def test_a_statement_that_takes_too_long_is_told_what_to_change(open_database):
    quick = open_database(0.1)

    assert "statementTimeout" in cause(lambda: quick.rows("select pg_sleep(60)")).message
    again = open_database(0.1)
    slow = "select n, pg_sleep(0.05) from generate_series(1, 1000) n"
    assert "statementTimeout" in cause(lambda: list(again.stream(slow))).message


def test_an_error_of_the_server_is_quoted_without_the_words_around_it(open_database):
    failure = cause(lambda: open_database().rows("select 1 / 0"))
    assert isinstance(failure, CannotRead)
    assert failure.message == "PostgreSQL refused a statement: division by zero"

    streamed = cause(
        lambda: list(open_database().stream("select 1 / (n - 9) from generate_series(1, 10) n"))
    )
    assert streamed.message == failure.message


def test_a_lost_connection_is_said_to_be_lost_and_opened_again(open_database, writer):
    held = open_database()
    (row,) = held.rows("select pg_backend_pid() as pid")
    writer.value("select pg_terminate_backend($1)", row["pid"])

    assert isinstance(cause(lambda: held.rows("select 1")), Unavailable)
    assert open_database().rows("select 1 as n") == [{"n": 1}]


def test_a_schema_that_is_missing_calls_for_migration(empty_database_url):
    bare = Connection(empty_database_url, 5.0)

    failure = cause(lambda: bare.rows("select * from skep.find_queues(null, 'a')"))

    assert "run `skep migrate" in failure.message


def test_a_role_that_may_not_read_is_told_what_to_grant(database_url, writer):
    writer.execute("create role spark_stranger login password 'x'")
    stranger = database_url.replace("//skep", "//spark_stranger").replace(
        database_url.partition("@")[0].rpartition(":")[2], "x"
    )
    try:
        failure = cause(
            lambda: Connection(stranger, 5.0).rows("select * from skep.find_queues(null, 'a')")
        )
        assert "grant it usage on schema skep" in failure.message
    finally:
        writer.execute("drop role spark_stranger")


def test_nobody_there_is_said_without_the_password():
    failure = cause(lambda: Connection("postgresql://me:secret@127.0.0.1:1/skep", 5.0))

    assert isinstance(failure, Unavailable)
    assert "cannot connect to postgresql://me:***@127.0.0.1:1/skep" in failure.message
    assert "secret" not in failure.message
