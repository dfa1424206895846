import json

import pytest

from skep.jobs.identifiers import new_id
from tests.support.sizes import sized

JOBS = "select * from skep.job_list($1, $2, $3, $4, $5, null, null, $6, $7, $8)"
CHAINS = "select * from skep.chain_list($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"


async def jobs(
    chains,
    *,
    name=None,
    state=None,
    chain=None,
    ids=None,
    blocked_by=None,
    descending=True,
    after=None,
    limit=100,
):
    return await chains.rows(JOBS, name, state, chain, ids, blocked_by, descending, after, limit)


async def list_chains(
    chains,
    *,
    name=None,
    state=None,
    parent=None,
    key=None,
    ids=None,
    since=None,
    until=None,
    descending=True,
    after=None,
    limit=100,
):
    return await chains.rows(
        CHAINS, name, state, parent, key, ids, since, until, descending, after, limit
    )


@pytest.fixture
def states(arun, chains, worker):
    """One job in each state."""
    return arun(make_states(chains, worker))


async def make_states(chains, worker):
    made = {"failed": await chains.start()}
    await chains.run(worker, outcome="failed", error="x")
    made["completed"] = await chains.start()
    await chains.run(worker)
    made["continued"] = await chains.start()
    await chains.claim(worker)
    made["running"] = await chains.go_on(worker, made["continued"], "second")
    await chains.claim(worker, "second")
    made["cancelled"] = await chains.start()
    await chains.rows("select skep.chain_cancel($1, false, '')", [made["cancelled"]])
    made["ready"] = await chains.start()
    made["scheduled"] = await chains.start(delay_s=60)
    made["blocked"] = await chains.start(blockers=[made["ready"]])
    return made


async def test_each_state_lists_its_jobs_and_no_other(chains, states):
    for state, job_id in states.items():
        rows = await jobs(chains, state=state)
        assert [(row["id"], row["state"]) for row in rows] == [(job_id, state)]


async def test_without_a_filter_everything_comes_newest_first(chains, states):
    rows = await jobs(chains)

    assert [row["id"] for row in rows] == sorted(states.values(), reverse=True)
    assert {row["state"] for row in rows} == set(states)


async def test_jobs_are_found_by_type_chain_id_and_blocker(chains, states):
    (second,) = await jobs(chains, name="second")
    assert second["id"] == states["running"]
    of_chain = await jobs(chains, chain=states["continued"], descending=False)
    assert [row["position"] for row in of_chain] == [0, 1]
    (blocked,) = await jobs(chains, blocked_by=states["ready"])
    assert blocked["id"] == states["blocked"]
    (found,) = await jobs(chains, ids=[states["ready"], new_id()])
    assert found["id"] == states["ready"]
    assert await jobs(chains, name="nobody") == []


async def test_chains_are_found_by_state_type_key_and_parent(chains, worker, states):
    parent = states["completed"]
    child = await chains.start("child", key="k", parent=parent)

    for filters in ({"key": "k"}, {"parent": parent}, {"name": "child"}, {"ids": [child]}):
        assert [row["id"] for row in await list_chains(chains, **filters)] == [child]
    failed = await list_chains(chains, state="failed")
    assert [(row["id"], row["error"]) for row in failed] == [(states["failed"], "x")]
    (running,) = await list_chains(chains, ids=[states["continued"]])
    assert (running["last_job_state"], running["job_count"]) == ("running", 2)


async def test_chains_are_found_by_the_time_of_their_start(chains):
    early = await chains.start()
    await chains.advance(60)
    late = await chains.start()

    assert [row["id"] for row in await list_chains(chains, since=chains.now)] == [late]
    assert [row["id"] for row in await list_chains(chains, until=chains.now)] == [early]


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("lister", [jobs, list_chains])
async def test_case_34_defect_v09_pages_over_rows_of_one_transaction_bring_each_once(
    chains, descending, lister
):
    await chains.start_all(*({"input": n} for n in range(1000)))
    seen, after = [], None
    while page := await lister(chains, descending=descending, after=after, limit=70):
        seen += [row["id"] for row in page]
        after = seen[-1]
        if len(seen) < 1000:
            await chains.start()  # rows that come meanwhile move nothing

    first = await jobs(chains, descending=False, limit=1000)
    assert len(seen) == len(set(seen))
    assert {row["id"] for row in first} <= set(seen)


async def walked(chains, statement):
    ((text,),) = await chains.rows(f"explain (format json) {statement}")
    return json.loads(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("condition", "index"),
    [
        ("state = 'failed'", "chain__state"),
        ("type_id = 3", "chain__type"),
        ("true", "chain_pkey"),
        ("state = 'completed'", "chain_pkey"),
    ],
)
async def test_case_35_every_filter_of_chains_walks_an_index_in_the_order_of_the_page(
    chains, condition, index
):
    await chains.connection.execute(
        """
        insert into skep.chain (id, type_id, state, last_job_id, created_at)
        select gen_random_uuid(), n % 10,
               case when n % 100 = 0 then 'failed' else 'completed' end, gen_random_uuid(), now()
        from generate_series(1, $1::integer) n
        """,
        sized(50_000, large=1_000_000),
    )
    await chains.connection.execute("analyze skep.chain")

    plan = str(
        await walked(chains, f"select * from skep.chain where {condition} order by id limit 50")
    )

    assert index in plan
    assert "Sort" not in plan


async def test_lists_show_the_last_error_of_what_is_tried_again(chains, worker):
    chain_id = await chains.start()
    for error in ("first", "second"):
        await chains.run(worker, outcome="retry", error=error, delay_s=0)
    await chains.run(worker, outcome="rescheduled", delay_s=0)

    async def shown():
        (job,) = await jobs(chains, ids=[chain_id])
        (chain,) = await list_chains(chains, ids=[chain_id])
        assert job["last_error"] == chain["last_error"]
        return job["error"], job["last_error"]

    assert await shown() == (None, "second")
    await chains.run(worker, outcome="failed", error="third")
    assert await shown() == ("third", "third")
    await chains.rows("select skep.chain_retry($1)", [chain_id])
    assert await shown() == (None, "second")
    await chains.run(worker)
    assert await shown() == (None, None), "what completed has no error"
