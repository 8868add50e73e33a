"""One file by HTTP: resumed where it broke off, tried again where that can help, whole or not there."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import httpx

from gti_pipeline.progress import Progress

ATTEMPTS = 5
BACKOFF_SECONDS = 1.0  # before the second attempt, doubled before each one after it
CONNECT_SECONDS = 6.0
READ_SECONDS = 60.0
TRY_AGAIN = {408, 429}  # and every 5xx
KB = 1000

log = logging.getLogger(__name__)


class FetchError(Exception):
    """A file could not be had; the message is one line. `status` is HTTP's, where a server refused."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(" ".join(message.split()))
        self.status = status


class _TryAgainError(Exception):
    """An attempt failed in a way that the next may not."""


def fetch(url: str, target: Path, auth: tuple[str, str] | None = None) -> None:
    """Writes what `url` serves to `target`, whole or not at all.

    What comes is kept in `<target>.part` until the file is whole: the next attempt, or the next call, asks for the
    rest by HTTP Range, provided that the server named the version of the file (ETag or Last-Modified) and still has
    it. A server that knows no ranges sends all again. `auth` is sent to the host of `url`, to none it redirects to.

    Raises:
        FetchError: the server refuses, or `ATTEMPTS` attempts have failed.
    """
    part = target.with_name(f"{target.name}.part")
    timeout = httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
    # identity: ranges and lengths then count the file's own bytes
    headers = {"Accept-Encoding": "identity", "User-Agent": "gti-pipeline"}
    with httpx.Client(auth=auth, timeout=timeout, headers=headers, follow_redirects=True) as client:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                _attempt(client, url, part)
                break
            except (httpx.TransportError, httpx.DecodingError, _TryAgainError) as error:
                reason = str(error) or type(error).__name__
            except httpx.HTTPError as error:  # redirects without end, an address that is none
                raise FetchError(f"{target.name}: {error}") from error
            if attempt == ATTEMPTS:
                raise FetchError(f"{target.name}: {reason} ({ATTEMPTS} attempts; what came is kept and resumed)")
            wait = BACKOFF_SECONDS * 2 ** (attempt - 1)
            log.warning("%s: %s; attempt %d of %d in %g s", target.name, reason, attempt + 1, ATTEMPTS, wait)
            time.sleep(wait)
    part.replace(target)


def _attempt(client: httpx.Client, url: str, part: Path) -> None:
    """Brings `part` to its full length, or raises."""
    have, headers = _resume_from(part)
    with client.stream("GET", url, headers=headers) as response:
        if response.status_code == 416:
            if response.headers.get("Content-Range") == f"bytes */{have}":
                return  # nothing is left to fetch: the file broke off after its last byte
            part.unlink(missing_ok=True)
            raise _TryAgainError("the part that is here is not the beginning of the file")
        _refuse(response, part)
        start = have if response.status_code == 206 else 0
        total = _total(response, start)
        _note_version(response, part)
        progress = Progress(f"download of {part.name.removesuffix('.part')}", "kB")
        with part.open("ab" if start else "wb") as file:
            done = start
            for chunk in response.iter_bytes():
                file.write(chunk)
                done += len(chunk)
                if total is not None:
                    progress(-(-done // KB), -(-total // KB))
    if total is not None and done != total:
        raise _TryAgainError(f"{done} of {total} bytes came")


def _resume_from(part: Path) -> tuple[int, dict[str, str]]:
    """Bytes that are here, and the headers that ask for the rest of the same version of the file."""
    have = part.stat().st_size if part.is_file() else 0
    version = _version_file(part)
    if not have or not version.is_file():
        return 0, {}
    return have, {"Range": f"bytes={have}-", "If-Range": version.read_text(encoding="utf-8")}


def _version_file(part: Path) -> Path:
    return part.with_name(f"{part.name}.version")


def _note_version(response: httpx.Response, part: Path) -> None:
    """Keeps what tells this version of the file from others; without it a later attempt begins anew."""
    tag = response.headers.get("ETag", "")
    version = tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified")
    if version and "Content-Encoding" not in response.headers:
        _version_file(part).write_text(version, encoding="utf-8")
    else:
        _version_file(part).unlink(missing_ok=True)


def _refuse(response: httpx.Response, part: Path) -> None:
    """Raises unless the response brings the file's bytes."""
    code, name = response.status_code, part.name.removesuffix(".part")
    if code in TRY_AGAIN or code >= 500:
        raise _TryAgainError(f"HTTP {code}")
    if code not in (200, 206):
        raise FetchError(f"{name}: HTTP {code}", code)
    if "text/html" in response.headers.get("Content-Type", "") and not name.endswith((".html", ".htm")):
        raise FetchError(f"{name}: a web page came in its place", 403)  # the page that asks to log in


def _total(response: httpx.Response, start: int) -> int | None:
    """The whole file's size in bytes, None where the server does not say."""
    if "Content-Encoding" in response.headers:
        return None  # the lengths are those of the encoded bytes
    if response.status_code == 206:
        span, _, total = response.headers.get("Content-Range", "").partition("/")
        if not span.startswith(f"bytes {start}-") or not total.isdecimal():
            raise FetchError(f"{response.url.path}: the server sent another range than asked for", 206)
        return int(total)
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else None
