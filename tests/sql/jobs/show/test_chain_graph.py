"""What is around a chain: what its jobs wait for, what they started, what waits for it."""

QUERY = "select * from skep.chain_graph($1, $2, $3)"


async def graph(chains, chain_id, *, chains_max=40, jobs_max=200):
    rows = await chains.rows(QUERY, chain_id, chains_max, jobs_max)
    return [(row["type"], row["position"]) for row in rows]


async def test_a_chain_comes_first_then_what_it_waits_for_and_theirs(chains):
    deep = await chains.start("deep")
    left = await chains.start("left", blockers=[deep])
    right = await chains.start("right")
    main = await chains.start("main", blockers=[left, right])
    await chains.start("unrelated")

    found = await graph(chains, main)

    assert found[0] == ("main", 0)
    assert sorted(found[1:3]) == [("left", 0), ("right", 0)]
    assert found[3:] == [("deep", 0)]
    assert await graph(chains, deep) == [("deep", 0), ("left", 0)]


async def test_chains_that_a_job_started_are_shown_from_both_ends(chains):
    parent = await chains.start("parent")
    child = await chains.start("child", parent=parent)

    assert await graph(chains, parent) == [("parent", 0), ("child", 0)]
    assert await graph(chains, child) == [("child", 0), ("parent", 0)]


async def test_attempts_come_with_their_jobs(chains):
    worker = await chains.enroll()
    chain_id = await chains.start("work")
    await chains.run(worker, "work", outcome="failed", error="no wax")

    [row] = await chains.rows(QUERY, chain_id, 40, 200)

    assert (row["state"], row["attempts"], row["error"]) == ("failed", 1, "no wax")
    assert '"outcome" : "failed"' in row["tries"]


async def test_of_much_the_nearest_and_newest_is_returned(chains):
    worker = await chains.enroll()
    wide = [await chains.start("wide") for _ in range(3)]
    main = await chains.start("main", blockers=wide)
    await chains.run(worker, "wide")
    for _ in range(3):
        [job] = await chains.claim(worker, "main")
        await chains.go_on(worker, job["job_id"], "main")

    newest = [("main", 3), ("main", 2), ("main", 1)]
    assert await graph(chains, main, jobs_max=3) == newest
    assert await graph(chains, main, chains_max=2) == [*newest, ("main", 0), ("wide", 0)]
