from tests.sql.jobs.show.test_job_list import make_states

COUNTS = "select * from skep.job_counts($1)"
BUDGET = 100_000


async def counts(chains, budget=BUDGET):
    return {row["type"]: row for row in await chains.rows(COUNTS, budget)}


async def fill(chains, name, count, *, priority=0, due="skep.now()", blockers=0, worker="null"):
    """Let so many jobs wait, written without their chains: nothing else looks at them."""
    (type_id,) = await chains.type_ids(name)
    await chains.connection.execute(
        f"""
        insert into skep.open_job (
          job_id, chain_id, type_id, priority, due_at, open_blockers, worker_id, max_attempts)
        select id, id, $1, $2, {due}, $3, {worker}, 3
        from (select gen_random_uuid() as id from generate_series(1, $4::integer)) new
        """,
        type_id,
        priority,
        blockers,
        count,
    )


async def test_counts_tell_how_many_are_open_and_how_long_the_oldest_waits(chains, worker):
    await make_states(chains, worker)
    await chains.advance(30)

    rows = await counts(chains)

    work = rows["work"]
    assert (work["ready"], work["scheduled"], work["blocked"], work["running"]) == (1, 1, 1, 0)
    assert work["oldest_ready_s"] == 30
    assert rows["second"]["running"] == 1
    assert rows["second"]["oldest_ready_s"] is None
    assert all(row["is_exact"] for row in rows.values())


async def test_types_without_open_jobs_are_left_out(chains, worker):
    await chains.start()
    await chains.run(worker)

    assert await counts(chains) == {}


async def test_jobs_of_every_priority_count_and_the_oldest_may_be_of_any(chains):
    await chains.start(priority=7)
    await chains.advance(10)
    await chains.start(priority=-7)
    await chains.start(priority=0, delay_s=60)

    work = (await counts(chains))["work"]

    assert (work["ready"], work["scheduled"], work["oldest_ready_s"]) == (2, 1, 10)


async def test_the_bound_is_exact_below_and_an_estimate_above(chains):
    await fill(chains, "few", 99)
    await fill(chains, "many", 5_000)
    await fill(chains, "late", 3_000, due="skep.now() + interval '1 day'")
    await fill(chains, "stuck", 2_000, blockers=1)
    await fill(chains, "running", 1_000, worker="gen_random_uuid()")
    await chains.connection.execute("analyze skep.open_job")

    rows = await counts(chains, budget=300)

    assert {row["bound"] for row in rows.values()} == {100}
    assert (rows["few"]["ready"], rows["few"]["is_exact"]) == (99, True)
    for name, state, true_count in (
        ("many", "ready", 5_000),
        ("late", "scheduled", 3_000),
        ("stuck", "blocked", 2_000),
        ("running", "running", 1_000),
    ):
        assert not rows[name]["is_exact"]
        assert abs(rows[name][state] - true_count) < true_count * 0.2, (name, rows[name][state])


async def test_an_estimate_is_never_less_than_what_was_counted(chains):
    await fill(chains, "old", 100)
    await chains.connection.execute("analyze skep.open_job")
    await fill(chains, "new", 4_000)  # the statistics do not know of it

    rows = await counts(chains, budget=2_000)

    assert rows["new"]["ready"] >= rows["new"]["bound"] == 1_000
    assert not rows["new"]["is_exact"]


async def test_counting_reads_no_more_than_its_budget_whatever_waits(chains):
    await fill(chains, "many", 30_000)
    await fill(chains, "stuck", 10_000, blockers=1)
    await chains.connection.execute("vacuum analyze skep.open_job")
    read = """
        select sum(pg_stat_get_xact_tuples_returned(c.oid)) from pg_class c
        where c.relnamespace = 'skep'::regnamespace and c.relkind in ('r', 'i')
          and c.relname like 'open_job%'
        """
    async with chains.connection.transaction():
        before = await chains.value(read)
        await counts(chains, budget=1_000)
        after = await chains.value(read)

    # A bound of 1,000 per priority and state; a few look-ups beside.
    assert after - before < 2_100
