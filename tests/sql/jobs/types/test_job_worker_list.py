LIST = "select * from skep.job_worker_list($1, $2)"


async def test_workers_show_what_they_run_and_whether_they_are_late(chains):
    first, second = await chains.enroll(lease_s=10), await chains.enroll(lease_s=60)
    for _ in range(3):
        await chains.start()
    await chains.claim(first, limit=2)
    await chains.advance(30)

    rows = await chains.rows(LIST, None, 10)

    assert [(row["id"], row["running"], row["is_late"]) for row in rows] == [
        (first, 2, True),
        (second, 0, False),
    ]
    assert [row["id"] for row in await chains.rows(LIST, first, 10)] == [second]
