"""HTTP as the model clients need it. The only module that imports httpx, and the only one to change with it."""

import contextlib
import functools
import os
import ssl
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from fanjoin.agent_proc.provider.failure import ProviderError
from fanjoin.ipc.settings import ModelLimits

# httpx imports a command line of its own and the asynchronous libraries when it finds them: a third of its cost. HTTP/2
# is loaded by the first connection that speaks it.
_NOT_NEEDED = [name for name in ("httpx._main", "anyio", "trio", "h2") if name not in sys.modules]
sys.modules.update(dict.fromkeys(_NOT_NEEDED))  # type: ignore[arg-type]
import httpx  # noqa: E402

for _name in _NOT_NEEDED:
    del sys.modules[_name]

Trace = Callable[[str, dict[str, Any]], None]
"""Is told of each stage of a request, in the thread that makes it."""
Failing = Callable[[], contextlib.AbstractContextManager[None]]
"""Makes a context in which an error of httpx becomes a failure of the model call."""

_HEADERS = {"user-agent": "fanjoin", "accept-encoding": "gzip, deflate"}
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
                    raise ProviderError("network", "The call lasted longer than allowed; it was cut off.")

    def read(self, limit: int) -> bytes:
        """Return the body, or its first bytes when it is longer than the limit."""
        body = bytearray()
        for chunk in self.chunks():
            body += chunk
            if len(body) >= limit:
                break
        return bytes(body[:limit])


def _new_transport(*, tls: bool, proxy: str | None) -> httpx.HTTPTransport:
    """Return a connection pool.

    Without the layers of a full client (cookies, redirects, authentication) a call takes half the memory.
    """
    context = tls_context() if tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    proxy_context = context if proxy and proxy.startswith("https:") else None
    via = httpx.Proxy(proxy, ssl_context=proxy_context) if proxy else None
    return httpx.HTTPTransport(verify=context, proxy=via, http2=tls and find_spec("h2") is not None)


_transport = functools.cache(_new_transport)
"""Returns the one pool of its kind. One that the zygote made is shared by its agents until they open a connection."""


def proxy_for(scheme: str, host: str) -> str | None:
    """Return the URL of the proxy that the environment names for a host; loopback never has one."""
    if host in _LOOPBACK or proxy_bypass(host):
        return None
    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


class Http:
    """Sends requests to the server of one base URL, over persistent connections.

    Args:
        base_url: names the server.
        limits: how long things may take.
        trace: is told of each stage of a request.
        shared: whether connections are those of all that this process has with the server.

    Raises:
        ProviderError: the URL, or the proxy that the environment names for it, cannot be used.
    """

    def __init__(self, base_url: str, limits: ModelLimits, trace: Trace | None = None, *, shared: bool = True) -> None:
        self._base_url = base_url.rstrip("/")
        self._limits = limits
        self._extensions: dict[str, Any] = {} if trace is None else {"trace": trace}
        with self._failing():
            self._transport = self._open(_transport if shared else _new_transport)

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    @contextlib.contextmanager
    def post(self, url: str, headers: dict[str, str], body: bytes) -> Iterator[Response]:
        """Send a request with a body of known length and give its response, whatever the status.

        Raises:
            ProviderError: no connection, no valid HTTP, or silence for longer than allowed.
        """
        with self._failing():
            request = self._request("POST", url, headers, body)
        with self._response(request) as response:
            yield response

    @contextlib.contextmanager
    def get(self, url: str, headers: dict[str, str], address: str) -> Iterator[Response]:
        """Ask for a page at one address of its host, whatever its name leads to by now, and give the response.

        Raises:
            ProviderError: no connection, no valid HTTP, or silence for longer than allowed.
        """
        with self._failing():
            named = httpx.URL(url)
            host = named.netloc.decode("ascii")
            request = self._request("GET", named.copy_with(host=address), {**headers, "host": host}, b"")
            request.extensions["sni_hostname"] = named.raw_host.decode("ascii")
        with self._response(request) as response:
            yield response

    @contextlib.contextmanager
    def _response(self, request: httpx.Request) -> Iterator[Response]:
        deadline = time.monotonic() + self._limits.whole_call
        with self._failing():
            response = self._transport.handle_request(request)
        try:
            # The transport looks this up once for the head of a reply, and once for its body.
            request.extensions["timeout"]["read"] = self._limits.between_bytes
            yield Response(response, deadline, self._failing)
        finally:
            response.close()

    def _open(self, pool: Callable[..., httpx.HTTPTransport]) -> httpx.HTTPTransport:
        parts = urlsplit(self._base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ProviderError("bad_request", f"The base URL {self._base_url!r} is not an http or https URL.")
        proxy = proxy_for(parts.scheme, parts.hostname)
        return pool(tls=parts.scheme == "https" or (proxy or "").startswith("https:"), proxy=proxy)

    def _request(self, method: str, url: str | httpx.URL, headers: dict[str, str], body: bytes) -> httpx.Request:
        raw = {name.encode(): value.encode() for name, value in {**_HEADERS, **headers}.items()}
        limits = self._limits
        timeout = {"connect": limits.connect, "pool": None, "write": limits.between_bytes, "read": limits.first_byte}
        extensions = {**self._extensions, "timeout": timeout}
        return httpx.Request(method, url, content=body, headers=raw, extensions=extensions)

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
        reason, retryable = "network", True
        match error:
            case httpx.ConnectTimeout():
                text = f"No connection to {url} within {limits.connect:g} s."
            case httpx.TimeoutException():
                text = f"{url} was silent for too long; the call was cut off."
            case httpx.ConnectError() if "CERTIFICATE_VERIFY" in str(error):
                retryable = False
                text = f"The certificate of {url} is not trusted: {error}. SSL_CERT_FILE names other certificates."
            case httpx.ConnectError() | httpx.ProxyError():
                text = f"No connection to {url}: {error}. Is the server running there?"
            case httpx.LocalProtocolError():
                reason, retryable = "auth", False
                text = "The API key holds characters that an HTTP header cannot carry."
            case httpx.DecodingError():
                reason, text = "invalid_response", f"{url} sent a body that cannot be decoded: {error}."
            case _:
                text = f"The connection to {url} broke: {error}."
        return ProviderError(reason, text, retryable=retryable)
