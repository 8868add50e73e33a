"""Which Prefect server a run uses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from flows import environment


@pytest.fixture(params=["true", "no server of Prefect"])
def answering(request: pytest.FixtureRequest) -> Iterator[tuple[str, int, str]]:
    """A server on a free port that gives one answer."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(request.param.encode())

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield "127.0.0.1", server.server_address[1], request.param
    server.shutdown()
    server.server_close()


def test_a_healthy_server_is_used(answering: tuple[str, int, str], monkeypatch: pytest.MonkeyPatch) -> None:
    host, port, says = answering
    monkeypatch.setattr(environment, "SERVER", (host, port))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    environment.use_running_server()
    used = environment.os.environ.get("PREFECT_API_URL")
    assert used == (f"http://{host}:{port}/api" if says == "true" else None)
    monkeypatch.delenv("PREFECT_API_URL", raising=False)


def test_nobody_listens_and_a_setting_of_the_users_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "SERVER", ("127.0.0.1", 9))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    environment.use_running_server()
    assert "PREFECT_API_URL" not in environment.os.environ
    monkeypatch.setenv("PREFECT_API_URL", "http://example.invalid/api")
    environment.use_running_server()
    assert environment.os.environ["PREFECT_API_URL"] == "http://example.invalid/api"
