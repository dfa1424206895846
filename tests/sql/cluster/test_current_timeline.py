async def test_a_server_that_was_never_promoted_is_on_its_first_timeline(log):
    assert await log.value("select skep.current_timeline()") == 1
