async def test_the_rules_of_the_queues_named_are_returned(log):
    first = await log.configure(
        "hive",
        dedup_window_s=60,
        encryption_enabled=True,
        max_size=7,
        overflow="drop_oldest",
        json_schema={"type": "object"},
        deferral="always",
    )
    await log.configure("wax")

    [row] = await log.rows("select * from skep.read_rules($1)", [first["id"], 1_000_000])

    assert tuple(row) == (
        first["id"],
        first["version"],
        60,
        True,
        7,
        "drop_oldest",
        '{"type": "object"}',
        "always",
    )
