"""One question to one endpoint and its reply, as all wire formats do it: redirects, refusals learnt, the key masked."""

from collections.abc import Callable
from urllib.parse import urljoin, urlsplit

import msgspec

from fanjoin.agent_proc.http import Http, Response
from fanjoin.agent_proc.provider.failure import ProviderError
from fanjoin.agent_proc.provider.reading import Reading
from fanjoin.agent_proc.provider.refusals import Refusals
from fanjoin.agent_proc.provider.reply import Reply
from fanjoin.ipc.messages import JsonObject
from fanjoin.ipc.text import mask_in

_REDIRECTS = range(300, 400)
_SAME_METHOD = (307, 308)
_HOPS = 3
_ACCEPT = {"content-type": "application/json", "accept": "text/event-stream, application/json"}


class Exchange:
    """Asks one endpoint.

    Args:
        http: the way to it.
        url: where questions go.
        key: its API key, for masking.
        headers: what else a request says of itself, such as the key.
        refusals: what the endpoint is known to refuse.
    """

    def __init__(self, http: Http, url: str, key: str, headers: dict[str, str], refusals: Refusals) -> None:
        self.refusals = refusals
        self._http = http
        self._url = url
        self._key = key
        self._headers = {**_ACCEPT, **headers}

    def ask(self, question: Callable[[frozenset[str]], JsonObject], reading: Callable[[], Reading]) -> Reply:
        """Return the reply to a question; parts of it that the server refuses are left out, now and later.

        Args:
            question: makes the request's body, without the parts that are named.
            reading: makes the reader of one response.

        Raises:
            ProviderError: the call failed; the key is masked in its message.
        """
        try:
            reply = None
            while reply is None:
                body = question(self.refusals.known)
                try:
                    reply = self._send(msgspec.json.encode(body), reading)
                except ProviderError as error:
                    if not self.refusals.learn(error, body):
                        raise
        except ProviderError as error:
            error.args = (mask_in(str(error), self._key),)
            raise
        reply.refused = self.refusals.known
        return reply

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _send(self, body: bytes, reading: Callable[[], Reading]) -> Reply:
        """Send a body to where the endpoint is, and on to where its own server says that it is."""
        url = self._url
        for _ in range(_HOPS):
            with self._http.post(url, self._headers, body) as response:
                target = _target(response, url)
                if not target:
                    return reading().read(response)
            url = target
        raise ProviderError("bad_request", f"{self._url} redirects again and again; correct the base URL.")


def place_of(base_url: str, path: str) -> str:
    """Return where questions go: below the base URL, or at it when it names the whole place."""
    return base_url.rstrip("/").removesuffix(path) + path


def _target(response: Response, url: str) -> str:
    """Return where a redirect leads, empty when the response is none.

    A key must not follow to another server, and a POST must stay one.

    Raises:
        ProviderError: it leads elsewhere, or would turn the request into another.
    """
    location = response.headers.get("location", "")
    if response.status not in _REDIRECTS or not location:
        return ""
    target = urljoin(url, location)
    if response.status in _SAME_METHOD and _origin(target) == _origin(url):
        return target
    text = f"The provider answered HTTP {response.status}: it redirects to {target}. Set the base URL to that place."
    raise ProviderError("bad_request", text, status=response.status)


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.lower()
