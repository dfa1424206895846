"""What consumer groups did, as one process tells it."""

from skep.telemetry.group_activity import REPEAT_S, GroupActivity, GroupNews

BEES, ANTS = ("hive", "bees"), ("hive", "ants")


def test_what_goes_on_is_told_again_only_after_a_while():
    activity = GroupActivity()

    assert activity.tell([BEES], now=0) == [GroupNews(*BEES, False, False)]
    assert activity.tell([BEES], now=10) == []
    assert activity.tell([BEES], now=REPEAT_S) == [GroupNews(*BEES, False, False)]


def test_what_is_new_is_told_at_once_though_the_poll_was_told():
    activity = GroupActivity()
    activity.tell([BEES, ANTS], now=0)
    activity.progressed.add(BEES)
    activity.failed.add(ANTS)

    assert activity.tell([BEES], now=1) == [
        GroupNews(*ANTS, False, True),
        GroupNews(*BEES, True, False),
    ]
    assert activity.tell([], now=2) == []


def test_what_could_not_be_told_is_told_again():
    activity = GroupActivity()
    activity.progressed.add(BEES)
    told = activity.tell([ANTS], now=0)
    activity.take_back(told)

    assert activity.tell([], now=1) == told
