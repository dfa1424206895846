import socket
from contextlib import contextmanager
from threading import Timer

import pytest

from skep.app.processes import assignment
from skep.app.processes.assignment import CannotListen, assign_workers, bind_listener
from skep.settings import Settings


def test_a_taken_port_is_refused_with_what_to_do(monkeypatch):
    monkeypatch.setattr(assignment, "PORT_PATIENCE_S", 0.1)
    with bind_listener("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]

        with pytest.raises(CannotListen, match=f"port {port} .* is in use.*--port"):
            bind_listener("127.0.0.1", port)


def test_an_unknown_host_is_refused_with_what_to_do():
    with pytest.raises(CannotListen, match="--host"):
        bind_listener("host.invalid", 0)


@contextmanager
def soon_free(kind):
    """Return a port whose holder is about to end."""
    with socket.socket(type=kind) as holder:
        holder.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            holder.listen()
        ending = Timer(0.2, holder.close)
        ending.start()
        yield holder.getsockname()[1]
        ending.join()


def test_the_port_is_waited_for_while_a_predecessor_ends():
    with soon_free(socket.SOCK_STREAM) as port, bind_listener("127.0.0.1", port) as listener:
        assert listener.getsockname()[1] == port


def test_the_port_for_peers_is_waited_for_while_a_predecessor_ends():
    with soon_free(socket.SOCK_DGRAM) as port, bind_listener("127.0.0.1", 0) as listener:
        settings = Settings(host="127.0.0.1", peer_port=port, peer_secret="x" * 32, workers=1)
        (worker,) = assign_workers(settings, dsn="", listener=listener)

        with worker.peer_socket, worker.wakeup_socket:
            assert worker.peer_socket.getsockname()[1] == port


def test_a_port_for_peers_that_stays_taken_is_refused_with_what_to_do():
    with socket.socket(type=socket.SOCK_DGRAM) as taken, bind_listener("127.0.0.1", 0) as listener:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        settings = Settings(
            host="127.0.0.1", peer_port=port, peer_secret="x" * 32, shutdown_grace_s=0.1
        )

        with pytest.raises(CannotListen, match=f"UDP port {port}.*peer_port"):
            assign_workers(settings, dsn="", listener=listener)
