"""Which changed settings a running instance follows."""

import pytest

from skep.app.processes.assignment import SettingsUpdates
from skep.settings import Settings
from skep.settings.fields import FIELDS
from skep.settings.reload import RELOADABLE, reloaded

DEFAULTS = Settings()


def test_what_can_be_followed_is_taken_and_the_rest_is_named():
    wanted = Settings(log_level="debug", port=7, workers=3)

    outcome = reloaded(DEFAULTS, wanted)

    assert outcome.settings == Settings(log_level="debug")
    assert outcome.changed == ("log_level",)
    assert outcome.needing_restart == ("port", "workers")


def test_equal_settings_change_nothing():
    outcome = reloaded(DEFAULTS, Settings())

    assert outcome.settings == DEFAULTS
    assert (outcome.changed, outcome.needing_restart) == ((), ())


def test_what_needs_a_restart_is_named_at_every_reload():
    first = reloaded(DEFAULTS, Settings(port=7))

    assert reloaded(first.settings, Settings(port=7)).needing_restart == ("port",)


@pytest.mark.parametrize("name", sorted(RELOADABLE))
def test_every_reloadable_setting_exists(name):
    assert name in FIELDS


def test_news_reach_a_listener_that_comes_later_and_only_the_last_of_them():
    heard, news = [], SettingsUpdates()
    news.deliver(Settings(port=1))
    news.deliver(Settings(port=2))

    news.listen(heard.append)
    news.deliver(Settings(port=3))
    news.close()
    news.deliver(Settings(port=4))

    assert [each.port for each in heard] == [2, 3]
