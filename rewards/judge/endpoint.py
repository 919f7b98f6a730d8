"""One request to an OpenAI-compatible endpoint, and what each way in which it can go wrong means."""

from __future__ import annotations

import importlib
import ipaddress
import json
import math
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from functools import cached_property
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

WORTH_A_RETRY = frozenset({408, 409, 429})  # and everything from 500
NO_SCHEMA = frozenset({400, 422})  # what servers say to a `response_format` that they do not know
NO_LIBRARY = "a judge needs the package openai; write pip install openai"
REMOVED = "<removed>"
LARGEST = 10_000_000  # bytes of a response
SHOWN = 200  # characters of a server's own words that an error repeats


class Failed(Exception):
    """There will be no answer. Failures of one `kind` have one cause."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


class Passing(Failed):
    """What may be over in a moment."""

    def __init__(self, kind: str, why: str, after: float = 0.0) -> None:
        super().__init__(kind, why)
        self.after = after  # seconds that the server asked for


class NoSchema(Failed):
    """The server refused the request, maybe only because of its `response_format`."""


class Endpoint:
    """The library's client, made at the first request and shared by threads, with its own retries off."""

    def __init__(self, url: str | None, key: str) -> None:
        """`url` None is OpenAI itself; an empty `key` sends a placeholder, because the library insists on one."""
        self.url, self.key = url, key

    def complete(
        self, model: str, messages: list[dict[str, str]], more: Mapping[str, Any], limit: float
    ) -> tuple[str, dict[str, int]]:
        """The judge's text ("" where it gave none), and its tokens by kind: prompt, completion.

        Args:
            more: further keys of the request.
            limit: seconds.
        Raises:
            Failed: the request went wrong; `Passing` and `NoSchema` where something can be done about it.
        """
        openai = _library()
        until = time.monotonic() + limit
        try:
            with self._client.chat.completions.with_streaming_response.create(
                model=model, messages=messages, timeout=limit, extra_body=dict(more)
            ) as response:
                body = _body(response.iter_bytes(), until)
        except Failed:
            raise
        except (openai.APITimeoutError, TimeoutError):
            raise Passing("timeout", f"it did not answer within {limit:.3g} s") from None
        except openai.APIConnectionError as error:
            cause = self._clean(str(error.__cause__ or error))
            raise Passing("unreachable", f"it cannot be reached at {self._address} ({cause})") from None
        except openai.APIStatusError as error:
            raise self._status(error, "response_format" in more) from None
        except Exception as error:  # of third-party code, and episodes that were paid for depend on it
            raise Failed("request", f"it cannot be asked ({type(error).__name__}: {self._clean(str(error))})") from None
        return _content(body)

    def hidden(self, text: str) -> str:
        """`text` without the key, which a server may repeat."""
        return text.replace(self.key, REMOVED) if self.key else text

    @cached_property
    def _client(self) -> Any:
        openai = _library()
        direct = openai.DefaultHttpxClient(trust_env=False) if is_local(self.url) else None  # no proxy leads there
        return openai.OpenAI(api_key=self.key or "none", base_url=self.url, max_retries=0, http_client=direct)

    @property
    def _address(self) -> str:
        parts = urlsplit(self.url or "https://api.openai.com/v1")
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def _status(self, error: Any, with_schema: bool) -> Failed:
        """What an HTTP error means; only its code tells an empty account from a busy server."""
        status, why = error.status_code, f"it answered {error.status_code} ({self._clean(str(error))})"
        if with_schema and status in NO_SCHEMA:
            return NoSchema("schema", why)
        if (status in WORTH_A_RETRY or status >= 500) and error.code != "insufficient_quota":
            return Passing(f"status {status}", why, _seconds(error.response.headers.get("retry-after", "")))
        return Failed(f"status {status}", why)

    def _clean(self, text: str) -> str:
        line = " ".join(self.hidden(text).split())
        return line if len(line) <= SHOWN else f"{line[:SHOWN]}…"


def is_local(url: str | None) -> bool:
    """Whether `url` leads to this machine or network, where a server usually wants no key."""
    host = urlsplit(url).hostname if url else None
    if host is None or host == "localhost":
        return host is not None
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return False


def is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False


def _body(chunks: Iterator[bytes], until: float) -> bytes:
    """All of a response. The library's time limit is that of one read, and a judge can drip.

    Raises:
        TimeoutError: it is not complete when the monotonic clock says `until`.
        Failed: it breaks off, or is larger than any answer.
    """
    body = bytearray()
    try:
        for chunk in chunks:
            body += chunk
            if time.monotonic() > until:
                raise TimeoutError
            if len(body) > LARGEST:
                raise Failed("size", f"its response is larger than {LARGEST:,} bytes")
    except (Failed, TimeoutError):
        raise
    except Exception as error:  # of the transport below the library, which has no common class for them
        raise Passing("unreachable", f"its response broke off ({type(error).__name__})") from None
    return bytes(body)


def _content(body: bytes) -> tuple[str, dict[str, int]]:
    try:
        reply = json.loads(body)
        text, usage = reply["choices"][0]["message"].get("content"), reply.get("usage")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise Passing("malformed", "its response is not that of a chat completion") from None
    counted = {kind: usage.get(f"{kind}_tokens") if isinstance(usage, dict) else 0 for kind in ("prompt", "completion")}
    tokens = {kind: number if isinstance(number, int) and number > 0 else 0 for kind, number in counted.items()}
    return text if isinstance(text, str) else "", tokens


def _seconds(retry_after: str) -> float:
    """What a `Retry-After` header asks for, in seconds: a number or a date; 0 where it says nothing."""
    try:
        seconds = float(retry_after)
        return 0.0 if math.isnan(seconds) else max(seconds, 0.0)
    except ValueError:
        pass
    try:
        return max(parsedate_to_datetime(retry_after).timestamp() - time.time(), 0.0)
    except ValueError:
        return 0.0


def _library() -> ModuleType:
    """The package `openai`, which only a run with a judge loads."""
    try:
        return importlib.import_module("openai")
    except ModuleNotFoundError as error:
        raise ValueError(NO_LIBRARY) from error
