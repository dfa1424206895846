import pytest

from skep.app.processes.assignment import CannotListen, bind_listener


def test_a_taken_port_is_refused_with_what_to_do():
    with bind_listener("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]

        with pytest.raises(CannotListen, match=f"port {port} .* is in use.*--port"):
            bind_listener("127.0.0.1", port)


def test_an_unknown_host_is_refused_with_what_to_do():
    with pytest.raises(CannotListen, match="--host"):
        bind_listener("host.invalid", 0)
