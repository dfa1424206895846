async def test_it_is_what_positions_name(log):
    identity = await log.value("select skep.system_identity()")

    assert identity == await log.value("select system from skep.take_position('{}')")
