"""An instance that is asked to end, to read its settings again, or that is killed."""

import asyncio
import json
import os
import signal
import time

import pytest

from tests.faults.support import instances
from tests.faults.support.instances import kill_instance, worker_pids
from tests.sql.support.waiting import PATIENCE_S, eventually
from tests.support.broker import elapsed

WAITING = """
select count(*) from pg_stat_activity
where datname = current_database() and wait_event_type = 'Lock'
  and application_name = 'skep worker 0'
"""
HELD_UP = """
select count(*) from pg_locks where relation = 'skep.installation'::regclass and not granted
"""
LEADER = """
select holder from skep.leadership where service = 'housekeeping' and expires_at > clock_timestamp()
"""
LEASE_S, ASKED_EVERY_S = 9, 3
SLACK_S = 10
AWAY = "postgresql://nobody@127.0.0.1:1/nothing"


def instance(database_url, *flags, **settings):
    """Run an instance of one worker; how it ends is the test's business."""
    return instances.instance(database_url, "--workers", "1", *flags, **settings)


# SIGTERM


async def test_defect_53_a_stop_answers_parked_polls_and_finishes_what_is_under_way(
    database_url, queue
):
    with instance(database_url) as broker:
        async with (
            broker.sql() as sql,
            broker.sql() as observer,
            broker.connect() as parked,
            broker.connect() as pushing,
        ):
            await pushing.push_payloads(queue, "before")
            parked.send_poll(f"{queue}-empty", wait=True, timeout=30_000)
            async with sql.transaction():
                await sql.fetch("select from skep.partition for update")
                pushing.request("POST", "/api/v1/push", push_body(queue, "under way"))
                await eventually(lambda: observer.fetchval(WAITING))
                broker.process.terminate()
                assert (await parked.answer()).status == 204
                assert await eventually(lambda: is_refused(broker))
            stored = await pushing.answer()
            exit_code = await asyncio.to_thread(broker.process.wait, PATIENCE_S)
            kept = await observer.fetchval("select sum(last - first + 1) from skep.segment")

    assert stored.status == 201
    assert exit_code == 0
    assert kept == 2


def push_body(queue, payload):
    return json.dumps({"items": [{"queue": queue, "payload": payload}]}).encode()


async def is_refused(broker):
    try:
        async with broker.connect():
            return False
    except ConnectionRefusedError:
        return True


async def test_a_stop_that_cannot_finish_ends_by_its_deadline(database_url, queue):
    grace_s = 1
    with instance(database_url, shutdown_grace_s=grace_s) as broker:
        async with broker.sql() as sql, broker.connect() as pushing, sql.transaction():
            await pushing.push_payloads(queue, "before")
            await sql.fetch("select from skep.partition for update")
            pushing.request("POST", "/api/v1/push", push_body(queue, "never stored"))
            async with broker.sql() as observer:
                await eventually(lambda: observer.fetchval(WAITING))
            with elapsed() as stopping:
                broker.process.terminate()
                await asyncio.to_thread(broker.process.wait, PATIENCE_S)

    assert stopping.seconds < grace_s + 8, "the push lost its patience first"


async def test_a_stop_gives_back_what_was_claimed_for_a_client_that_is_gone(database_url, queue):
    with instance(database_url) as broker:
        async with broker.sql() as sql, broker.sql() as observer, broker.connect() as client:
            await client.push_payloads(queue, "kept")
            await client.pop(f"{queue}-other")
            async with sql.transaction():
                await sql.execute("lock table skep.cursor in access exclusive mode")
                async with broker.connect() as leaving:
                    leaving.send_poll(queue)
                    await eventually(lambda: observer.fetchval(WAITING))
                # By the time of this answer the broker has noticed that the client is gone.
                assert (await client.call("GET", "/health")).status == 200
                broker.process.terminate()
            assert await asyncio.to_thread(broker.process.wait, PATIENCE_S) == 0
            leases = "select count(*) from skep.cursor where lease_id is not null"

            assert await observer.fetchval(leases) == 0


# SIGHUP


@pytest.fixture
def settings_file(tmp_path):
    path = tmp_path / "skep.toml"
    path.write_text('log_level = "info"\n')
    return path


async def test_a_hangup_takes_over_what_can_be_and_names_what_needs_a_restart(
    database_url, settings_file, queue
):
    key = "11" * 32
    with instance(database_url, "--config", str(settings_file)) as broker:
        async with broker.connect() as client:
            body = {"queue": queue, "options": {"encryptionEnabled": True}}
            before = await client.post("/api/v1/configure", body)
            settings_file.write_text(
                f'log_level = "debug"\nencryption_keys = "{key}"\nconnections = 5\n'
            )
            broker.process.send_signal(signal.SIGHUP)

            async def is_configured():
                return (await client.post("/api/v1/configure", body)).status == 201

            await eventually(is_configured)
            log = broker.log()
        assert broker.stop() == 0

    assert before.status == 409
    assert "changed: encryption_keys, log_level" in log
    assert "changes that need a restart: connections" in log
    assert key not in log


async def test_a_hangup_with_wrong_settings_changes_nothing(database_url, settings_file):
    with instance(database_url, "--config", str(settings_file)) as broker:
        settings_file.write_text("log_level = 7")
        broker.process.send_signal(signal.SIGHUP)

        log = await eventually(lambda: "nothing changed" in broker.log() and broker.log())

        async with broker.connect() as client:
            assert (await client.call("GET", "/readyz")).status == 200
        assert broker.stop() == 0

    assert "log_level" in log


async def test_a_worker_that_is_restarted_has_the_settings_that_were_reloaded(
    database_url, settings_file, queue
):
    with instance(database_url, "--config", str(settings_file)) as broker:
        settings_file.write_text(f'encryption_keys = "{"11" * 32}"')
        broker.process.send_signal(signal.SIGHUP)
        await eventually(lambda: "changed: encryption_keys" in broker.log())
        (worker,) = worker_pids(broker)
        os.kill(worker, signal.SIGKILL)
        await eventually(lambda: worker_pids(broker) not in ([], [worker]))

        body = {"queue": queue, "options": {"encryptionEnabled": True}}

        async def is_configured():
            try:
                async with broker.connect() as client:
                    return (await client.post("/api/v1/configure", body)).status == 201
            except (OSError, EOFError):
                return False

        assert await eventually(is_configured)
        assert broker.stop() == 0


# Kill


@pytest.mark.slow
async def test_when_the_leader_is_killed_another_instance_leads_within_seconds(database_url):
    with instance(database_url) as victim:
        async with victim.sql() as sql:
            first = await eventually(lambda: sql.fetchval(LEADER))
            with instance(database_url) as survivor:
                kill_instance(victim.process)
                began = time.monotonic()

                async def has_another_leader():
                    leader = await sql.fetchval(LEADER)
                    return leader if leader not in {None, first} else None

                second = await eventually(has_another_leader)
                waited_s = time.monotonic() - began
                assert survivor.stop() == 0

    assert second != first
    assert waited_s < LEASE_S + ASKED_EVERY_S + SLACK_S


# Starts


async def test_a_stop_while_a_worker_starts_ends_well(database_url, connect):
    sql = await connect()
    with instances.instance(database_url, "--workers", "2") as broker:
        victim, _ = worker_pids(broker)
        async with sql.transaction():
            # The worker that is started in its place cannot get beyond its first look here.
            await sql.execute("lock table skep.installation in access exclusive mode")
            os.kill(victim, signal.SIGKILL)
            await eventually(lambda: sql.fetchval(HELD_UP))
            exit_code = await asyncio.to_thread(broker.stop)
        log = broker.log()

    assert exit_code == 0, log
    assert "Traceback" not in log, log


WATCH_DDL = """
create table public.noticed (command text);
create function public.notice() returns event_trigger language plpgsql as $$
begin
  insert into public.noticed select command_tag from pg_event_trigger_ddl_commands();
end $$;
create event trigger notice on ddl_command_end execute function public.notice();
"""


async def test_defect_52_a_start_on_a_current_schema_changes_nothing_and_waits_for_no_lock(
    database_url, connect, queue
):
    sql, reader = await connect(), await connect()
    await sql.execute(WATCH_DDL)
    async with reader.transaction():
        # Whoever reads the tables stands in the way of every change to them.
        tables = await reader.fetch("select oid::regclass::text from pg_class where relkind = 'r' "
                                    "and relnamespace = 'skep'::regnamespace")  # fmt: skip
        for (table,) in tables:
            await reader.execute(f"lock table {table} in access share mode")
        with instance(database_url, "--migrate", "always") as broker:
            async with broker.connect() as client:
                (pushed,) = await client.push_payloads(queue, "served")

    assert pushed["status"] == "queued"
    assert [row[0] for row in await sql.fetch("select command from public.noticed")] == []
    await sql.execute("create table public.proof ()")
    assert [row[0] for row in await sql.fetch("select command from public.noticed")] == [
        "CREATE TABLE"
    ]


async def test_defect_54_whether_it_lives_and_whether_it_is_ready_are_two_questions(
    client, tmp_path
):
    with instance(AWAY, spill_dir=tmp_path, start_without_database="always") as waiting:
        async with waiting.connect() as its_client:
            answers = [
                (await each.call("GET", path)).status
                for each in (client, its_client)
                for path in ("/livez", "/readyz")
            ]

    assert answers == [200, 200, 200, 503]
