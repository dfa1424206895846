from tests.sql.support.letters import bury

SUMMARIZE = "select * from skep.summarize_letters($1, $2)"


async def test_the_most_frequent_error_comes_first(log):
    await bury(log, "x", partition="a", error="stung")
    await bury(log, "y", "z", partition="b", error="lost")

    rows = await log.rows(SUMMARIZE, 100, 10)

    assert list(map(tuple, rows)) == [("lost", 2, 2), ("stung", 1, 2)]


async def test_only_the_newest_letters_are_looked_at(log):
    await bury(log, "x", partition="a", error="stung")
    await log.advance()
    await bury(log, "y", partition="b", error="lost")

    assert list(map(tuple, await log.rows(SUMMARIZE, 1, 10))) == [("lost", 1, 1)]


async def test_no_more_errors_are_told_than_asked_for(log):
    for number in range(3):
        await bury(log, f"x{number}", error=f"error {number}")

    assert len(await log.rows(SUMMARIZE, 100, 2)) == 2
    await log.clear()
    assert await log.rows(SUMMARIZE, 100, 2) == []
