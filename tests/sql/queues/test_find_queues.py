FIND = "select name from skep.find_queues($1, $2)"


async def names(log, wanted, pattern=None):
    return [row["name"] for row in await log.rows(FIND, wanted, pattern)]


async def test_queues_are_found_by_name_and_unknown_names_are_not(log):
    await log.partition("a")
    await log.partition("b")

    assert await names(log, ["b", "a", "c"]) == ["a", "b"]
    assert await names(log, []) == []


async def test_a_pattern_has_to_match_the_whole_name(log):
    for queue in ("orders", "orders-eu", "old-orders"):
        await log.partition(queue)

    assert await names(log, None, "orders.*") == ["orders", "orders-eu"]
    assert await names(log, None, "a|orders") == ["orders"]
