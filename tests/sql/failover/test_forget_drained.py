"""The progress of spill files is forgotten with the files."""

from tests.sql.support.spilling import File

FORGET = "select skep.forget_drained($1, $2)"


async def test_deleted_files_are_forgotten_and_others_stay(log):
    gone, kept = File(log), File(log)
    await gone.drain(0, 1, {})
    await kept.drain(0, 1, {})

    await log.rows(FORGET, [gone.file_id], 90)

    assert [await gone.position(), await kept.position()] == [None, 1]


async def test_what_nobody_spoke_of_for_long_goes_too(log):
    old, young = File(log), File(log)
    await old.drain(0, 1, {})
    await log.advance(91 * 86_400)
    await young.drain(0, 1, {})

    await log.rows(FORGET, [], 90)

    assert [await old.position(), await young.position()] == [None, 1]
