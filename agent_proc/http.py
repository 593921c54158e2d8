"""HTTP as the model clients need it. The only module that imports httpx, and the only one to change with it."""

import contextlib
import functools
import os
import ssl
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from fanjoin.agent_proc.provider.failure import ProviderError
from fanjoin.ipc.settings import ModelLimits

# httpx imports a command line of its own and the asynchronous libraries when it finds them: a third of its cost.
_NOT_NEEDED = [name for name in ("httpx._main", "anyio", "trio") if name not in sys.modules]
sys.modules.update(dict.fromkeys(_NOT_NEEDED))  # type: ignore[arg-type]
import httpx  # noqa: E402

for _name in _NOT_NEEDED:
    del sys.modules[_name]

Trace = Callable[[str, dict[str, Any]], None]
"""Is told of each stage of a request, in the thread that makes it."""
Failing = Callable[[], contextlib.AbstractContextManager[None]]
"""Makes a context in which an error of httpx becomes a failure of the model call."""

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@functools.cache
def tls_context() -> ssl.SSLContext:
    """Return this process's one TLS context: parsing the certificates costs 50 ms, so it is made when first needed.

    REQUESTS_CA_BUNDLE, SSL_CERT_FILE and SSL_CERT_DIR name other certificates than those of certifi.
    """
    file = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("SSL_CERT_FILE")
    folder = os.environ.get("SSL_CERT_DIR")
    if file and os.path.isdir(file):
        file, folder = None, file
    if not file and not folder:
        import certifi

        file = certifi.where()
    return ssl.create_default_context(cafile=file or None, capath=folder or None)


class Response:
    """The head of a reply, whose body is read as it arrives."""

    def __init__(self, response: httpx.Response, deadline: float, failing: Failing) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._deadline = deadline
        self._failing = failing

    def chunks(self) -> Iterator[bytes]:
        """Yield the body, decoded from its transfer and content encodings.

        Raises:
            ProviderError: the connection was cut or silent, or the call lasted too long.
        """
        with self._failing():
            for chunk in self._response.iter_bytes():
                yield chunk
                if time.monotonic() > self._deadline:
                    raise ProviderError("network", "The model call lasted longer than allowed; it was cut off.")

    def read(self, limit: int) -> bytes:
        """Return the body, or its first bytes when it is longer than the limit."""
        body = bytearray()
        for chunk in self.chunks():
            body += chunk
            if len(body) >= limit:
                break
        return bytes(body[:limit])


class Http:
    """One persistent client for one base URL."""

    def __init__(self, base_url: str, limits: ModelLimits, trace: Trace | None = None) -> None:
        self._base_url = base_url.rstrip("/")
        self._limits = limits
        self._extensions: dict[str, Any] = {} if trace is None else {"trace": trace}
        with self._failing():
            self._client = self._open()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    @contextlib.contextmanager
    def post(self, path: str, headers: dict[str, str], body: bytes) -> Iterator[Response]:
        """Send a request with a body of known length and give its response, whatever the status.

        Raises:
            ProviderError: no connection, no valid HTTP, or silence for longer than allowed.
        """
        with self._failing():
            request = self._request(path, headers, body)
            deadline = time.monotonic() + self._limits.whole_call
            response = self._client.send(request, stream=True)
        try:
            # The transport reads this once more when the body begins.
            request.extensions["timeout"]["read"] = self._limits.between_bytes
            yield Response(response, deadline, self._failing)
        finally:
            response.close()

    def _open(self) -> httpx.Client:
        parts = urlsplit(self._base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ProviderError("bad_request", f"The base URL {self._base_url!r} is not an http or https URL.")
        limits = self._limits
        return httpx.Client(
            verify=tls_context() if parts.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            trust_env=parts.hostname not in _LOOPBACK,
            timeout=httpx.Timeout(limits.between_bytes, connect=limits.connect, read=limits.first_byte),
            headers={"user-agent": "fanjoin"},
        )

    def _request(self, path: str, headers: dict[str, str], body: bytes) -> httpx.Request:
        raw = {name: value.encode() for name, value in headers.items()}
        url = self._base_url + path
        return self._client.build_request("POST", url, content=body, headers=raw, extensions=dict(self._extensions))  # type: ignore[arg-type]

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except httpx.HTTPError as error:
            raise self._failure(error) from error
        except (httpx.InvalidURL, ImportError, ValueError, OSError) as error:
            text = f"The request to {self._base_url} cannot be made: {error}"
            raise ProviderError("bad_request", text) from error

    def _failure(self, error: httpx.HTTPError) -> ProviderError:
        """Return what an error of httpx means for a model call."""
        url, limits = self._base_url, self._limits
        match error:
            case httpx.ConnectTimeout():
                return ProviderError("network", f"No connection to {url} within {limits.connect:g} s.")
            case httpx.TimeoutException():
                return ProviderError("network", f"{url} was silent for too long; the call was cut off.")
            case httpx.ConnectError() | httpx.ProxyError():
                return ProviderError("network", f"No connection to {url}: {error}. Is the server running there?")
            case httpx.LocalProtocolError():
                return ProviderError("auth", "The API key holds characters that an HTTP header cannot carry.")
            case httpx.DecodingError():
                return ProviderError("invalid_response", f"{url} sent a body that cannot be decoded: {error}.")
            case _:
                return ProviderError("network", f"The connection to {url} broke: {error}.")
