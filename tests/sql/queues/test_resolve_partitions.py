RESOLVE = "select * from skep.resolve_partitions($1, $2)"


async def test_names_that_exist_get_their_ids_and_others_no_row(log):
    a, b = await log.provision("hive", "a", "b")
    await log.provision("wax", "c")
    queue = await log.value("select id from skep.queue where name = 'hive'")

    rows = await log.rows(RESOLVE, queue, ["b", "c", "a"])

    assert {tuple(row) for row in rows} == {("a", a), ("b", b)}
