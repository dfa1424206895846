FAILED = "select * from skep.failed_chains($1, $2)"


async def fail(chains, name, error):
    await chains.start(name, max_attempts=1)
    await chains.run(await chains.enroll(), name, outcome="failed", error=error)


async def test_failed_chains_are_summed_up_by_type(chains):
    began_at = chains.now
    await fail(chains, "order", "no stock")
    await chains.advance(10)
    await fail(chains, "order", "no stock")
    await fail(chains, "mail", "no server")
    await chains.start("order")

    rows = await chains.rows(FAILED, 100, 60)

    assert [tuple(row) for row in rows] == [
        ("order", 2, began_at, chains.now, "no stock"),
        ("mail", 1, chains.now, chains.now, "no server"),
    ]


async def test_what_failed_long_ago_is_no_news(chains):
    await fail(chains, "order", "no stock")
    await chains.advance(61)

    assert await chains.rows(FAILED, 100, 60) == []
