"""Keys and certificates that are read again while the broker serves."""

import pytest

from skep.app.parts.security import Security
from skep.model.errors import InvalidToken
from skep.settings import Settings
from tests.support.tokens import claims, private_key, public_pem, sign


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "keys.pem"
    path.write_text(public_pem("EdDSA", "old"))
    return path


@pytest.fixture
def security(key_file):
    settings = Settings(jwt_enabled=True, jwt_algorithm="EdDSA", jwt_public_key_file=key_file)
    return Security(settings, None, now=lambda: 0.0, is_away=lambda: False)


def header(name):
    return b"Bearer " + sign(claims(), "EdDSA", private_key("EdDSA", name)).encode()


def test_a_key_that_was_replaced_is_good_after_a_reload_and_the_old_one_is_not(security, key_file):
    identify = security.guard.authenticator.identify
    assert identify(header("old")).subject == "tester"

    key_file.write_text(public_pem("EdDSA", "new"))
    security.reload()

    assert identify(header("new")).subject == "tester"
    with pytest.raises(InvalidToken):
        identify(header("old"))


@pytest.mark.parametrize("content", ["", "no key at all", None])
def test_a_file_that_cannot_be_used_leaves_the_keys_as_they_were(
    security, key_file, content, caplog
):
    if content is None:
        key_file.unlink()
    else:
        key_file.write_text(content)
    security.reload()

    assert security.guard.authenticator.identify(header("old")).subject == "tester"
    assert "previous ones are kept" in caplog.text
