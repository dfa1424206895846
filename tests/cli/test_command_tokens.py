"""Commands against a broker that asks who is calling."""

import pytest

from tests.support.tokens import SECRET, claims, sign


@pytest.fixture(scope="module")
def broker(start_broker):
    """A broker that asks for tokens."""
    with start_broker("--workers", "1", jwt_enabled="true", jwt_secret=SECRET) as broker:
        yield broker


def test_who_is_not_known_or_may_not_ends_with_three(skep, broker, tmp_path):
    for command in (("pop", "q"), ("tail", "q"), ("push", "q", "1")):
        said = skep(*command, code=3).err
        assert "--token" in said
        assert len(said.splitlines()) == 1
    reader = sign(claims("read-only"))
    skep("push", "q", "1", "--token", reader, code=3)
    skep("push", "q", "1", "--token", sign(claims("read-write")))


def test_the_doctor_tells_a_missing_token_from_one_that_ends_soon(run, broker):
    def access(*flags, code):
        asked = ("doctor", "--database-url", broker.database_url, "--url", broker.url, *flags)
        findings = run(*asked, "-o", "json", code=code).json()
        return next(each for each in findings if each["topic"] == "access")

    assert "there is none" in access(code=2)["found"]
    assert "refused" in access("--token", "nonsense", code=2)["found"]
    assert "tester, role admin; it expires in" in access("--token", sign(claims()), code=0)["found"]
