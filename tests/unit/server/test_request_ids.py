import pytest

from skep.server.problems import id_line, request_id


def test_the_id_of_a_client_is_kept_if_it_is_harmless():
    assert request_id(b"abc-1:2/3") == "abc-1:2/3"
    assert id_line("abc") == b"x-request-id: abc\r\n"


@pytest.mark.parametrize(
    "given", [None, b"", b"a b", b"a\r\nset-cookie: x", b"x" * 129, "\u00e9".encode()]
)
def test_what_could_do_harm_is_replaced(given):
    made = request_id(given)

    assert len(made) == 32
    assert made != request_id(given)
