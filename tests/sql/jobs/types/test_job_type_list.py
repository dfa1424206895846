LIST = "select * from skep.job_type_list($1, $2)"


async def test_types_come_by_name_with_their_limits(chains):
    await chains.type_ids("b", "a", "c")
    limits = "array['b'], array[2], null, array[5], array[1.5]"
    await chains.value(f"select skep.job_type_limit({limits})")

    rows = await chains.rows(LIST, None, 2)

    assert [row["name"] for row in rows] == ["a", "b"]
    assert (rows[1]["concurrency"], rows[1]["rate_limit"], rows[1]["rate_period_s"]) == (2, 5, 1.5)
    assert not rows[1]["is_paused"]
    assert [row["name"] for row in await chains.rows(LIST, "b", 2)] == ["c"]
