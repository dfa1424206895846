from datetime import timedelta

NOTE = "select skep.note_marker(skep.now(), $1, 'a:1', '1.0')"
LIST = "select * from skep.list_markers($1, $2, $3)"


async def test_the_newest_are_kept_and_every_first_sight_of_a_version(log):
    await log.execute("truncate skep.marker")
    for kind in ("deploy", "restart"):
        await log.value(NOTE, kind)
    await log.execute(
        "insert into skep.marker (at, kind, instance, version)"
        " select skep.now(), 'loss', 'a:1', '1.0' from generate_series(1, 1000)"
    )
    await log.value(NOTE, "restart")
    assert await log.value("select count(*) from skep.marker where kind <> 'loss'") == 2
    assert await log.value("select count(*) from skep.marker where kind = 'deploy'") == 1


async def test_markers_of_a_time_come_newest_first(log):
    await log.execute("truncate skep.marker")
    began_at = log.now
    for kind in ("deploy", "loss", "restart"):
        await log.value(NOTE, kind)
        await log.advance(60)

    rows = await log.rows(LIST, began_at, began_at + timedelta(seconds=61), 10)

    assert [tuple(row) for row in rows] == [
        (began_at + timedelta(seconds=60), "loss", "a:1", "1.0"),
        (began_at, "deploy", "a:1", "1.0"),
    ]
    assert len(await log.rows(LIST, began_at, log.now, 1)) == 1
