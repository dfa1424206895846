"""Chains by state, counted up to a bound."""

QUERY = "select * from skep.chain_counts($1)"


async def test_chains_are_counted_up_to_a_bound(chains):
    worker = await chains.enroll()
    for outcome in ("completed", "completed", "failed"):
        await chains.start("work")
        await chains.run(worker, "work", outcome=outcome)
    await chains.start("work")

    assert {tuple(row) for row in await chains.rows(QUERY, 10)} == {
        ("open", 1, True),
        ("failed", 1, True),
        ("cancelled", 0, True),
        ("completed", 2, True),
    }
    assert ("open", 1, False) in {tuple(row) for row in await chains.rows(QUERY, 1)}
