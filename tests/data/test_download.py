"""Downloads against a local server at the edge: it redirects, zips, drops, refuses and lies as real ones do."""

import base64
import hashlib
import io
import json
import logging
import socket
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

import pytest

from gti_pipeline.config import DataConfig
from gti_pipeline.data import http_file, kaggle
from gti_pipeline.data.source import resolve_source
from gti_pipeline.errors import GtiError

HANDLE = "owner/name"
PREFIX = f"/api/v1/datasets/download/{HANDLE}/"
ROWS = b"id;name\n" + b"".join(b"%d;row number %d\n" % (n, n) for n in range(20_000))


class Cut(int):
    """A fault: so many bytes of the promised body come, then the connection ends."""


class Handler(BaseHTTPRequestHandler):
    """Serves `server.files`; each request of a file takes the next fault of `server.faults`, if there is one."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.answer(404, b"", {})

    def do_GET(self):
        name = unquote(self.path.removeprefix(PREFIX))
        self.server.seen.append((name, dict(self.headers)))
        faults = self.server.faults.get(name, [])
        fault = faults.pop(0) if faults else None
        body = self.server.files.get(name)
        if type(fault) is int:
            self.answer(fault, b"no", {})
        elif body is None:
            self.answer(404, b"no such file", {})
        elif fault == "html":
            self.answer(200, b"<html>log in</html>", {"Content-Type": "text/html; charset=utf-8"})
        elif isinstance(fault, str):
            self.answer(302, b"", {"Location": fault})
        else:
            self.serve(body, fault)

    def serve(self, body, cut):
        headers = {"ETag": self.server.etag} if self.server.etag else {}
        start, status = 0, 200
        asked = self.headers.get("Range")
        if asked and self.server.ranges and self.headers.get("If-Range") == self.server.etag:
            start, status = int(asked.removeprefix("bytes=").rstrip("-")), 206
            if start >= len(body):
                return self.answer(416, b"", {"Content-Range": f"bytes */{len(body)}"})
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        return self.answer(status, body[start:], headers, cut)

    def answer(self, status, body, headers, cut=None):
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), "Connection": "close", **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body if cut is None else body[:cut])


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {"a.csv": ROWS, "b.csv": b"id\n1\n"}
        self.faults, self.seen = {}, []
        self.ranges, self.etag = True, '"v1"'
        self.url = f"http://127.0.0.1:{self.server_port}"

    def asked(self, name):
        return [headers for seen, headers in self.seen if seen == name]


def start():
    server = Server()
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    return server


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """No proxy, no credentials of whoever runs the tests, no answer remembered from another test."""
    for name in ("KAGGLE_USERNAME", "KAGGLE_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    kaggle.unreachable.cache_clear()


@pytest.fixture
def server(alone, monkeypatch):
    server = start()
    monkeypatch.setenv("GTI_KAGGLE_URL", server.url)
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def waits(monkeypatch):
    """The pauses between attempts, not waited for."""
    taken = []
    monkeypatch.setattr(http_file.time, "sleep", taken.append)
    return taken


def get(tmp_path, *names):
    return kaggle.download(HANDLE, names or ("a.csv", "b.csv"), tmp_path / "raw" / "set")


def content(tmp_path):
    folder = tmp_path / "raw" / "set"
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.is_dir() else {}


def record(tmp_path):
    entries = json.loads((tmp_path / "raw" / "set" / "downloads.json").read_text())
    return {entry["file"]: entry for entry in entries}


def test_only_the_named_files_come_and_are_recorded(tmp_path, server):
    server.files["images.bin"] = b"x" * 1000
    assert get(tmp_path) is None
    assert sorted(content(tmp_path)) == ["a.csv", "b.csv", "downloads.json"]
    assert content(tmp_path)["a.csv"] == ROWS
    assert [name for name, _ in server.seen] == ["a.csv", "b.csv"]
    entry = record(tmp_path)["a.csv"]
    assert entry.pop("time")[:2] == "20"
    assert entry == {
        "handle": HANDLE,
        "url": f"{server.url}{PREFIX}a.csv",
        "file": "a.csv",
        "bytes": len(ROWS),
        "sha256": hashlib.sha256(ROWS).hexdigest(),
    }
    assert sorted(path.name for path in (tmp_path / "raw").iterdir()) == [".set.lock", "set"]


def test_a_name_in_a_folder_is_one_part_of_the_address(tmp_path, server):
    server.files["part 1/a.csv"] = ROWS
    assert get(tmp_path, "part 1/a.csv") is None
    assert (tmp_path / "raw" / "set" / "part 1" / "a.csv").read_bytes() == ROWS
    assert record(tmp_path)["part 1/a.csv"]["url"].endswith("/owner/name/part%201%2Fa.csv")


def test_progress_is_said(tmp_path, server, caplog):
    caplog.set_level(logging.INFO)
    assert get(tmp_path, "a.csv") is None
    kilobytes = -(-len(ROWS) // 1000)
    assert f"download of a.csv: {kilobytes} of {kilobytes} kB in 0:00" in caplog.text


def test_redirect_to_storage_without_the_credentials(tmp_path, server, monkeypatch):
    monkeypatch.setenv("KAGGLE_USERNAME", "me")
    monkeypatch.setenv("KAGGLE_KEY", "secret")
    storage = start()
    server.faults["a.csv"] = [f"{storage.url}/bucket/a.csv?signature=x"]
    storage.files["/bucket/a.csv?signature=x"] = ROWS
    try:
        assert get(tmp_path, "a.csv") is None
    finally:
        storage.shutdown()
        storage.server_close()
    assert content(tmp_path)["a.csv"] == ROWS
    given = server.asked("a.csv")[0]["Authorization"]
    assert base64.b64decode(given.removeprefix("Basic ")) == b"me:secret"
    assert [list(headers) for _, headers in storage.seen if "Authorization" in headers] == []
    assert len(storage.seen) == 1
    assert "signature" not in (tmp_path / "raw" / "set" / "downloads.json").read_text()


def test_credentials_from_the_file(tmp_path, server):
    folder = tmp_path / "home" / ".kaggle"
    folder.mkdir(parents=True)
    (folder / "kaggle.json").write_text('{"username": "me", "key": "secret"}')
    assert get(tmp_path, "b.csv") is None
    assert server.asked("b.csv")[0]["Authorization"] == "Basic " + base64.b64encode(b"me:secret").decode()
    (folder / "kaggle.json").write_text('{"username": "me"}')
    kaggle.shutil.rmtree(tmp_path / "raw")
    assert "kaggle.json: not a JSON object with username and key" in get(tmp_path, "b.csv")


def test_redirects_without_end_are_one_line(tmp_path, server, waits):
    server.faults["b.csv"] = [f"{server.url}{PREFIX}b.csv"] * 50
    problem = get(tmp_path, "b.csv")
    assert "redirects" in problem
    assert "\n" not in problem


def zipped(**members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in members.items():
            archive.writestr(name, body)
    return buffer.getvalue()


def test_a_zip_is_unpacked(tmp_path, server):
    server.files["a.csv"] = zipped(**{"a.csv": ROWS})
    assert get(tmp_path) is None
    assert content(tmp_path)["a.csv"] == ROWS
    assert record(tmp_path)["a.csv"]["sha256"] == hashlib.sha256(ROWS).hexdigest()
    assert sorted(content(tmp_path)) == ["a.csv", "b.csv", "downloads.json"]


def test_a_zip_without_the_file_or_damaged_is_refused(tmp_path, server):
    server.files["a.csv"] = zipped(**{"other.csv": b"x"})
    assert "came in a zip that holds ['other.csv']" in get(tmp_path, "a.csv")
    damaged = bytearray(zipped(**{"a.csv": ROWS}))
    damaged[200] ^= 0xFF
    server.files["a.csv"] = bytes(damaged)
    assert "damaged zip" in get(tmp_path, "a.csv")
    assert content(tmp_path) == {}
    server.files["a.csv"] = ROWS
    assert get(tmp_path, "a.csv") is None


def test_a_dropped_connection_is_resumed(tmp_path, server, waits):
    server.faults["a.csv"] = [Cut(100_000), Cut(50_000)]
    assert get(tmp_path, "a.csv") is None
    assert content(tmp_path)["a.csv"] == ROWS
    assert [headers.get("Range") for headers in server.asked("a.csv")] == [None, "bytes=100000-", "bytes=150000-"]
    assert waits == [1.0, 2.0]


def test_the_next_run_goes_on_where_this_one_broke_off(tmp_path, server, waits):
    server.faults["a.csv"] = [Cut(1000)] * http_file.ATTEMPTS
    problem = get(tmp_path, "b.csv", "a.csv")
    assert "a.csv: " in problem
    assert "5 attempts" in problem
    assert "\n" not in problem
    assert content(tmp_path) == {}
    assert waits == [1.0, 2.0, 4.0, 8.0]
    assert get(tmp_path, "b.csv", "a.csv") is None
    assert content(tmp_path)["a.csv"] == ROWS
    assert server.asked("a.csv")[-1]["Range"] == "bytes=5000-"
    assert len(server.asked("b.csv")) == 1  # it was whole
    assert sorted(content(tmp_path)) == ["a.csv", "b.csv", "downloads.json"]


def test_what_an_earlier_run_left_over_is_not_published(tmp_path, server, waits):
    server.faults["a.csv"] = [Cut(1000)] * http_file.ATTEMPTS
    assert get(tmp_path, "b.csv", "a.csv") is not None
    server.files["c.csv"] = b"id\n3\n"
    assert get(tmp_path, "c.csv") is None
    assert sorted(content(tmp_path)) == ["c.csv", "downloads.json"]


def test_a_file_that_changed_meanwhile_is_not_spliced(tmp_path, server, waits):
    server.faults["a.csv"] = [Cut(1000)] * http_file.ATTEMPTS
    assert get(tmp_path, "a.csv") is not None
    server.files["a.csv"], server.etag = ROWS[::-1], '"v2"'
    assert get(tmp_path, "a.csv") is None
    assert content(tmp_path)["a.csv"] == ROWS[::-1]


@pytest.mark.parametrize(("ranges", "etag"), [(False, '"v1"'), (True, None), (True, 'W/"weak"')])
def test_a_server_that_cannot_resume_restarts(tmp_path, server, waits, ranges, etag):
    server.ranges, server.etag = ranges, etag
    server.faults["a.csv"] = [Cut(1000)]
    assert get(tmp_path, "a.csv") is None
    assert content(tmp_path)["a.csv"] == ROWS
    assert len(server.asked("a.csv")) == 2
    assert ("Range" in server.asked("a.csv")[1]) == (etag == '"v1"')  # no strong version, nothing to resume safely


def test_a_part_that_is_whole_already(tmp_path, server):
    partial = tmp_path / "raw" / ".set-partial"
    partial.mkdir(parents=True)
    (partial / "a.csv.part").write_bytes(ROWS)
    (partial / "a.csv.part.version").write_text('"v1"')
    assert get(tmp_path, "a.csv") is None
    assert content(tmp_path)["a.csv"] == ROWS
    assert sorted(content(tmp_path)) == ["a.csv", "downloads.json"]
    assert len(server.asked("a.csv")) == 1


def test_a_part_longer_than_the_file_is_thrown_away(tmp_path, server, waits):
    partial = tmp_path / "raw" / ".set-partial"
    partial.mkdir(parents=True)
    (partial / "a.csv.part").write_bytes(ROWS + b"more")
    (partial / "a.csv.part.version").write_text('"v1"')
    assert get(tmp_path, "a.csv") is None
    assert content(tmp_path)["a.csv"] == ROWS


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_server_in_trouble_is_asked_again(tmp_path, server, waits, status):
    server.faults["b.csv"] = [status, status]
    assert get(tmp_path) is None
    assert waits == [1.0, 2.0]


def test_a_server_in_trouble_for_good(tmp_path, server, waits):
    server.faults["b.csv"] = [500] * 20
    assert "b.csv: HTTP 500 (5 attempts" in get(tmp_path)
    assert len(server.asked("b.csv")) == http_file.ATTEMPTS
    assert content(tmp_path) == {}


def test_a_missing_file_is_said_and_nothing_published(tmp_path, server, waits):
    del server.files["b.csv"]
    assert get(tmp_path).endswith("b.csv: HTTP 404: the data set has no such file")
    assert content(tmp_path) == {}
    assert waits == []


@pytest.mark.parametrize("refusal", [401, 403, "html"])
def test_a_refusal_says_how_to_get_access(tmp_path, server, waits, refusal):
    server.faults["a.csv"] = [refusal]
    problem = get(tmp_path)
    assert "KAGGLE_USERNAME and KAGGLE_KEY (or ~/.kaggle/kaggle.json)" in problem
    assert "\n" not in problem
    assert (waits, content(tmp_path)) == ([], {})


def test_a_lost_file_comes_again_and_must_be_the_recorded_one(tmp_path, server):
    assert get(tmp_path) is None
    folder = tmp_path / "raw" / "set"
    (folder / "b.csv").unlink()
    kaggle.verify(folder, ["a.csv", "b.csv"])
    assert content(tmp_path)["b.csv"] == b"id\n1\n"
    assert len(server.asked("a.csv")) == 1
    assert sorted(record(tmp_path)) == ["a.csv", "b.csv"]

    (folder / "b.csv").unlink()
    server.files["b.csv"] = b"id\n2\n"
    with pytest.raises(GtiError, match=r"b\.csv: sha256 \w{64} is not the \w{64} of .*downloads\.json"):
        kaggle.verify(folder, ["a.csv", "b.csv"])
    assert not (folder / "b.csv").exists()


def test_a_changed_file_is_named(tmp_path, server):
    assert get(tmp_path) is None
    folder = tmp_path / "raw" / "set"
    (folder / "a.csv").write_bytes(ROWS[:-2] + b"!\n")
    (folder / "b.csv").write_bytes(b"")
    with pytest.raises(GtiError) as error:
        kaggle.verify(folder, ["a.csv", "b.csv"])
    assert "a.csv: sha256 is not the one in downloads.json" in str(error.value)
    assert "b.csv: sha256 is not" in str(error.value)
    (folder / "downloads.json").write_text("{")
    with pytest.raises(GtiError, match=r"downloads\.json: not readable as a record"):
        kaggle.verify(folder, ["a.csv", "b.csv"])
    (folder / "downloads.json").unlink()
    kaggle.verify(folder, ["a.csv", "b.csv"])  # the files are the user's own now


def test_a_closed_port_is_one_line(tmp_path, alone, monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, not listening: nobody else gets the port
        monkeypatch.setenv("GTI_KAGGLE_URL", f"http://127.0.0.1:{closed.getsockname()[1]}")
        problem = get(tmp_path)
    assert problem.startswith("Kaggle cannot be reached (http://127.0.0.1:")
    assert "owner/name was not downloaded" in problem
    assert "\n" not in problem


def test_a_host_that_never_answers_is_given_up(tmp_path, alone, monkeypatch):
    monkeypatch.setattr(kaggle, "CONNECT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        monkeypatch.setenv("GTI_KAGGLE_URL", f"http://127.0.0.1:{mute.getsockname()[1]}")
        assert "cannot be reached" in get(tmp_path)


def test_a_name_that_never_resolves_is_given_up(tmp_path, alone, monkeypatch):
    hang = threading.Event()

    def getaddrinfo(*args, **kwargs):
        hang.wait(20)
        raise socket.gaierror("no such name")

    monkeypatch.setattr(kaggle, "CONNECT_SECONDS", 0.2)
    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setenv("GTI_KAGGLE_URL", "http://nowhere.invalid")
    assert "no answer within 0.2 s" in get(tmp_path)
    hang.set()


@pytest.mark.parametrize("url", ["kaggle.example", "http://", "ftp://127.0.0.1"])
def test_an_address_that_is_none_is_one_line(tmp_path, alone, monkeypatch, url):
    monkeypatch.setenv("GTI_KAGGLE_URL", url)
    problem = get(tmp_path)
    assert problem.startswith("Kaggle cannot be reached (")
    assert "\n" not in problem


def shop(**changes):
    files = {"items": {"file": "a.csv"}, "interactions": {"file": "b.csv"}}
    return DataConfig.model_validate({"name": "set", "kaggle": HANDLE, "standin": "vibrent"} | files | changes)


def test_a_source_is_downloaded_once_and_checked_after(tmp_path, server):
    source = resolve_source(shop(), tmp_path)
    assert (source.name, source.is_standin) == ("set", False)
    assert "downloaded from Kaggle (owner/name)" in source.note
    assert resolve_source(shop(), tmp_path).files["a.csv"].read_bytes() == ROWS
    assert len(server.seen) == 2
    (tmp_path / "raw" / "set" / "a.csv").write_bytes(b"other")
    with pytest.raises(GtiError, match=r"a\.csv: sha256 is not the one in downloads\.json"):
        resolve_source(shop(), tmp_path)


def test_a_failed_download_is_refused_where_real_data_is_required(tmp_path, server):
    server.files.clear()
    with pytest.raises(GtiError, match=r"(?s)owner/name failed: a\.csv: HTTP 404.*put a\.csv, b\.csv into"):
        resolve_source(shop(require_real=True), tmp_path)
