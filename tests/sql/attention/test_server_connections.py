async def test_the_connections_of_all_applications_are_counted(log):
    row = await log.row("select * from skep.server_connections()")

    assert 1 <= row["used"] <= row["most"]
