import asyncio
import json
from datetime import timedelta

import pytest

from skep.jobs.identifiers import new_id
from tests.sql.jobs.chains.test_chain_start import until_it_waits


async def test_a_completed_job_closes_its_chain_with_its_output(chains, worker):
    chain_id = await chains.start()
    await chains.claim(worker)

    assert await chains.settle(worker, chain_id, output={"sum": 3}) == "settled"

    assert await chains.chain_state(chain_id) == "completed"
    (row,) = await chains.rows("select * from skep.chain_outcome($1)", [chain_id])
    assert json.loads(row["output"]) == {"sum": 3}
    assert await chains.value("select count(*) from skep.open_job") == 0


async def test_case_03_a_continuation_is_the_next_position_of_the_same_chain(chains, worker):
    chain_id = await chains.start()
    await chains.claim(worker)

    next_id = await chains.go_on(worker, chain_id, "second", next_input=5)

    (job,) = await chains.claim(worker, "second")
    assert (job["job_id"], job["chain_id"], job["position"]) == (next_id, chain_id, 1)
    assert (await chains.state(chain_id), await chains.chain_state(chain_id)) == (
        "continued",
        "open",
    )


async def test_case_04_of_two_concurrent_continuations_one_is_written(chains, open_chains, worker):
    other, observer = await open_chains(), await open_chains()
    chain_id = await chains.start()
    await chains.claim(worker)
    async with chains.connection.transaction():
        await chains.go_on(worker, chain_id)
        late = asyncio.create_task(other.settle(worker, chain_id, "continued", next_type="work"))
        await until_it_waits(observer, other)

    assert await late == "lost"
    assert await chains.value("select count(*) from skep.job") == 2


@pytest.mark.parametrize("outcome", ["completed", "continued", "retry", "failed", "released"])
async def test_case_26_a_stale_owner_can_write_nothing(chains, worker, outcome):
    chain_id = await chains.start()
    await chains.claim(worker)
    await chains.settle(worker, chain_id, "released")
    await chains.claim(worker)

    answer = await chains.settle(worker, chain_id, outcome, attempt=1, next_type="work")

    assert answer == "lost"
    assert await chains.state(chain_id) == "running"


async def test_case_26_another_worker_can_write_nothing(chains, worker):
    chain_id = await chains.start()
    await chains.claim(worker)

    assert await chains.settle(new_id(), chain_id) == "lost"
    assert await chains.settle(worker, chain_id) == "settled"


async def test_a_lost_job_does_not_fail_its_neighbours(chains, worker):
    first, second = await chains.start(), await chains.start()
    await chains.claim(worker)

    rows = await chains.settle_all(
        worker, {"job_id": first, "attempt": 7}, {"job_id": new_id()}, {"job_id": second}
    )

    assert [row["outcome"] for row in rows] == ["lost", "lost", "settled"]


async def test_case_21_a_retry_waits_counts_and_leaves_a_row_of_history(chains, worker):
    job_id = await chains.start()
    await chains.claim(worker)

    await chains.settle(worker, job_id, "retry", error="no bees", delay_s=10)

    assert await chains.claim(worker) == []
    await chains.advance(10)
    (job,) = await chains.claim(worker)
    assert (job["attempt"], job["failures"]) == (2, 1)
    history = await chains.rows("select * from skep.job_attempts($1, 0, 10)", job_id)
    assert [(row["outcome"], row["error"]) for row in history] == [
        ("failed", "no bees"),
        ("running", None),
    ]


async def test_case_22_a_reschedule_is_no_failure_and_uses_the_exact_time(chains, worker):
    job_id = await chains.start()
    await chains.claim(worker)
    at = chains.now + timedelta(minutes=7)

    await chains.settle(worker, job_id, "rescheduled", due_at=at)

    (last,) = await chains.claim_rows(worker)
    assert last["due_at"] == at
    await chains.advance(to=at)
    (job,) = await chains.claim(worker)
    assert (job["attempt"], job["failures"]) == (2, 0)


async def test_case_09_a_reschedule_into_the_past_is_now(chains, worker):
    job_id = await chains.start()
    await chains.claim(worker)

    await chains.settle(worker, job_id, "rescheduled", due_at=chains.now - timedelta(days=1))

    assert await chains.value("select due_at from skep.open_job") == chains.now


async def test_a_job_that_failed_for_good_fails_its_chain(chains, worker):
    job_id = await chains.start()
    await chains.claim(worker)

    await chains.settle(worker, job_id, "failed", error="no bees")

    assert await chains.chain_state(job_id) == "failed"
    (row,) = await chains.rows("select * from skep.job_attempts($1, 0, 10)", job_id)
    assert (row["outcome"], row["error"]) == ("failed", "no bees")


async def test_the_last_blocker_makes_a_job_ready_and_says_so(chains, worker):
    blockers = [await chains.start("a"), await chains.start("a")]
    job_id = await chains.start(blockers=blockers)
    first, second = await chains.claim(worker, "a")

    await chains.settle(worker, first["job_id"])
    assert await chains.state(job_id) == "blocked"
    (row,) = await chains.settle_all(worker, {"job_id": second["job_id"]})

    assert row["woken"] == ["work"]
    assert await chains.state(job_id) == "ready"


async def test_case_09_a_future_due_time_survives_unblocking(chains, worker):
    blocker = await chains.start("a")
    job_id = await chains.start(blockers=[blocker], delay_s=60)

    await chains.run(worker, "a")

    assert await chains.state(job_id) == "scheduled"


async def test_case_10_a_job_that_was_blocked_for_long_does_not_overtake_ready_ones(chains, worker):
    blocker = await chains.start("a")
    blocked = await chains.start(blockers=[blocker])
    await chains.advance(60)
    ready = await chains.start()
    await chains.advance(60)
    await chains.run(worker, "a")

    assert [job["job_id"] for job in await chains.claim(worker)] == [ready, blocked]


@pytest.mark.parametrize("first_commits", [True, False])
async def test_defect_v04_blockers_that_complete_in_overlapping_transactions_unblock(
    chains, open_chains, worker, first_commits
):
    """The second waits for the first; when that is rolled back the job stays blocked."""
    other, observer = await open_chains(), await open_chains()
    blockers = [await chains.start("a"), await chains.start("b")]
    job_id = await chains.start(blockers=blockers)
    await chains.claim(worker, "a", "b")
    first = chains.connection.transaction()
    await first.start()
    await chains.settle(worker, blockers[0])
    second = asyncio.create_task(other.settle(worker, blockers[1]))
    await until_it_waits(observer, other)
    await (first.commit() if first_commits else first.rollback())

    assert await second == "settled"

    assert await chains.stranded() == []
    assert await chains.state(job_id) == ("ready" if first_commits else "blocked")
    if not first_commits:
        await chains.settle(worker, blockers[0])
        assert await chains.state(job_id) == "ready"


async def test_case_13_batches_that_share_dependents_do_not_deadlock(chains, open_chains):
    """Each batch completes one blocker of every job, in opposite orders."""
    other = await open_chains()
    workers = [await chains.enroll(), await chains.enroll()]
    pairs = [(await chains.start("a"), await chains.start("b")) for _ in range(30)]
    jobs = [await chains.start(blockers=pair) for pair in pairs]
    await chains.claim(workers[0], "a", limit=100)
    await chains.claim(workers[1], "b", limit=100)
    ones = [{"job_id": pair[0]} for pair in pairs]
    others = [{"job_id": pair[1]} for pair in reversed(pairs)]

    await asyncio.gather(
        chains.settle_all(workers[0], *ones), other.settle_all(workers[1], *others)
    )

    assert await chains.stranded() == []
    assert {await chains.state(job_id) for job_id in jobs} == {"ready"}


@pytest.mark.parametrize("completion_first", [True, False])
async def test_case_14_a_blocker_that_completes_while_it_is_added_never_strands_the_job(
    chains, open_chains, worker, completion_first
):
    other, observer = await open_chains(), await open_chains()
    blocker = await chains.start("a")
    await chains.type_ids("work")
    await chains.claim(worker, "a")
    complete, add = (lambda s: s.settle(worker, blocker)), (lambda s: s.start(blockers=[blocker]))
    before, after = (complete, add) if completion_first else (add, complete)
    async with chains.connection.transaction():
        await before(chains)
        task = asyncio.create_task(after(other))
        await until_it_waits(observer, other)
    await task

    assert await chains.stranded() == []
    assert len(await chains.claim(worker)) == 1


async def test_case_14_many_interleavings_never_strand_a_job(chains, open_chains, worker):
    sessions = [await open_chains() for _ in range(4)]
    await chains.type_ids("work")
    for _ in range(10):
        blockers = [await chains.start("a") for _ in range(2)]
        await chains.claim(worker, "a")
        await asyncio.gather(
            sessions[0].settle(worker, blockers[0]),
            sessions[1].start(blockers=blockers),
            sessions[2].settle(worker, blockers[1]),
            sessions[3].start(blockers=blockers[::-1]),
        )
    assert await chains.stranded() == []
    assert len(await chains.claim(worker, limit=100)) == 20


async def test_case_15_a_completion_that_is_rolled_back_unblocks_nobody(chains, worker):
    blocker = await chains.start("a")
    job_id = await chains.start(blockers=[blocker])
    await chains.claim(worker, "a")
    transaction = chains.connection.transaction()
    await transaction.start()
    await chains.settle(worker, blocker)
    assert await chains.state(job_id) == "ready"
    await transaction.rollback()

    assert await chains.state(job_id) == "blocked"


async def test_case_16_a_continuation_cannot_wait_for_a_chain_that_waits_for_it(chains, worker):
    chain_id = await chains.start()
    await chains.claim(worker)
    between = await chains.start("b", blockers=[chain_id])
    dependent = await chains.start("c", blockers=[between])

    answer = await chains.settle(
        worker, chain_id, "continued", next_type="work", blockers=[dependent]
    )

    assert answer == "cyclic"
    assert await chains.state(chain_id) == "running", "nothing was written"


async def test_case_16_a_continuation_cannot_wait_for_a_chain_that_does_not_exist(chains, worker):
    chain_id = await chains.start()
    await chains.claim(worker)

    answer = await chains.settle(
        worker, chain_id, "continued", next_type="work", blockers=[new_id()]
    )

    assert answer == "missing_blocker"


async def test_a_continuation_waits_for_its_blockers(chains, worker):
    chain_id, blocker = await chains.start(), await chains.start("a")
    await chains.claim(worker)

    job_id = await chains.go_on(worker, chain_id, "second", blockers=[blocker])

    assert await chains.state(job_id) == "blocked"
    await chains.run(worker, "a")
    assert await chains.state(job_id) == "ready"


async def test_case_17_a_diamond_runs_each_job_once_and_in_order(chains, worker):
    top = await chains.start("top")
    left = await chains.start("left", blockers=[top])
    right = await chains.start("right", blockers=[top])
    bottom = await chains.start("bottom", blockers=[left, right])
    everything = ("top", "left", "right", "bottom")

    order = [await chains.run(worker, *everything) for _ in range(4)]

    assert order == [[top], [left, right], [bottom], []]


async def test_fatal_blockers_fail_their_dependents_all_the_way_and_others_wait(chains, worker):
    blocker = await chains.start("a")
    fatal = await chains.start(blockers=[blocker], on_failure="fail")
    further = await chains.start(blockers=[fatal], on_failure="fail")
    patient = await chains.start(blockers=[blocker])
    await chains.claim(worker, "a")

    (row,) = await chains.settle_all(worker, {"job_id": blocker, "outcome": "failed", "error": "x"})

    assert set(row["closed"]) == {blocker, fatal, further}
    assert [await chains.chain_state(each) for each in (fatal, further)] == ["failed"] * 2
    assert await chains.state(patient) == "blocked"


async def test_a_chain_that_somebody_holds_delays_no_other(chains, open_chains, worker):
    held, free = await chains.start(), await chains.start()
    await chains.claim(worker)
    other = await open_chains()
    async with other.connection.transaction():
        await other.start("b", blockers=[held])

        rows = await chains.settle_all(worker, {"job_id": held}, {"job_id": free}, wait=False)

    assert [row["outcome"] for row in rows] == ["busy", "settled"]
    assert await chains.settle(worker, held) == "settled"


async def test_defect_v07_ending_a_job_is_an_update_in_place(chains, worker):
    """The state of a job is in no index: its second and last write stays on the page."""
    query = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'job'"
    await chains.connection.execute("vacuum full skep.job")
    await chains.rows("select pg_stat_reset_single_table_counters('skep.job'::regclass)")
    for _ in range(20):
        await chains.start()
    await chains.run(worker)

    await chains.rows("select pg_stat_clear_snapshot()")
    await chains.rows("select pg_stat_force_next_flush()") if await chains.value(
        "select current_setting('server_version_num')::int >= 150000"
    ) else None
    (row,) = await chains.rows(query)

    assert row["n_tup_upd"] == row["n_tup_hot_upd"] == 20
