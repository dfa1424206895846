PAUSE = "select skep.job_type_pause($1, $2)"


async def test_jobs_of_a_paused_type_are_not_claimed(chains):
    worker = await chains.enroll()
    await chains.start("work")
    await chains.start("other")
    assert await chains.value(PAUSE, "work", True)

    claimed = await chains.claim(worker, "work", "other")

    assert [row["chain_id"] for row in claimed] == [
        await chains.value(
            "select c.id from skep.chain c join skep.job_type t on t.id = c.type_id"
            " where t.name = 'other'"
        )
    ]


async def test_nobody_is_told_to_look_again_at_a_paused_type(chains):
    worker = await chains.enroll()
    await chains.start("work", delay_s=60)
    await chains.value(PAUSE, "work", True)

    (last,) = await chains.claim_rows(worker, "work")

    assert (last["job_id"], last["due_at"]) == (None, None)


async def test_a_resumed_type_goes_on_where_it_was(chains):
    worker = await chains.enroll()
    ids = [await chains.start("work") for _ in range(3)]
    await chains.value(PAUSE, "work", True)

    await chains.value(PAUSE, "work", False)

    assert [row["job_id"] for row in await chains.claim(worker)] == ids


async def test_what_runs_when_its_type_is_paused_goes_on(chains):
    worker = await chains.enroll()
    job_id = await chains.start("work")
    await chains.claim(worker)
    await chains.value(PAUSE, "work", True)

    assert await chains.settle(worker, job_id) == "settled"


async def test_an_unknown_type_is_not_paused(chains):
    assert not await chains.value(PAUSE, "nobody", True)
