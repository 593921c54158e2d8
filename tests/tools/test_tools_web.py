"""Pages from a real server on loopback: what is shown of them, where redirects may lead, and what is never reached."""

import gzip
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools_support import Tools

from fanjoin.agent_proc import http as http_module
from fanjoin.agent_proc.http import Http, tls_context
from fanjoin.agent_proc.provider.failure import ProviderError
from fanjoin.agent_proc.toolsets import web
from fanjoin.agent_proc.toolsets.addresses import is_public
from fanjoin.agent_proc.toolsets.page import page_text
from fanjoin.ipc.settings import ApprovalSettings, ModelLimits

CERTIFICATE = Path(__file__).parents[1] / "agent" / "loopback.pem"
HTML = b"<html><head><title>T</title><script>evil()</script></head><body><h1>One</h1><p>two <a href='/x'>three</a></p>"

Page = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """Answers by the path, and remembers who asked for what."""

    protocol_version = "HTTP/1.1"
    server: "Site"

    def do_GET(self) -> None:
        """Answer one request."""
        self.server.asked.append((self.path, dict(self.headers)))
        self.server.pages[self.path](self)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Site(ThreadingHTTPServer):
    """A web server with its pages."""

    daemon_threads = True

    def __init__(self, **pages: Page) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.pages = {f"/{name}": page for name, page in pages.items()}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.host = f"127.0.0.1:{self.server_address[1]}"
        self.url = f"http://{self.host}"
        self.over = threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def handle_error(self, *_: object) -> None:
        """A client that leaves is part of the tests."""

    def close(self) -> None:
        """End it."""
        self.over.set()
        self.shutdown()
        self.server_close()


def page(body: bytes, content_type: str = "text/html", status: int = 200, **headers: str) -> Page:
    """Return a page."""

    def answer(handler: Handler) -> None:
        handler.send_response(status)
        for name, value in {"content_type": content_type, **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


@pytest.fixture
def sites() -> Iterator[Callable[..., Site]]:
    """Make web servers; they end with the test."""
    made: list[Site] = []

    def make(**pages: Page) -> Site:
        made.append(Site(**pages))
        return made[-1]

    yield make
    for site in made:
        site.close()


def tools(folder: Path, *sites: Site, **approvals: Any) -> Tools:
    """Return the tools of an agent that may fetch from these servers, although they are on this machine."""
    hosts = tuple(site.host for site in sites)
    return Tools(folder, ApprovalSettings(**{"mode": "allow", "private_hosts": hosts, **approvals}), "web")


# --- what is shown -------------------------------------------------------------------------------------------------


def test_a_page_is_shown_as_text(tmp_path: Path, sites: Callable[..., Site]) -> None:
    """The text with its links below a line that says where it is from; nothing of ours is sent but the address."""
    site = sites(a=page(HTML))
    shown = tools(tmp_path, site).call("fetch_url", url=f"{site.url}/a#part")
    text = f"T\n\n# One\n\ntwo three <{site.url}/x>"
    assert shown == f"{site.url}/a: characters 1-{len(text)} of {len(text)}\n{text}"
    ((path, headers),) = site.asked
    assert path == "/a"
    assert {name.lower() for name in headers} <= {"user-agent", "accept-encoding", "accept", "host"}


@pytest.mark.parametrize(
    ("content_type", "body", "shown"),
    [
        ("text/html; charset=latin-1", b"<p>caf\xe9</p>", "café"),
        ("text/html", b"<meta charset='iso-8859-1'><p>caf\xe9</p>", "café"),
        ("text/html; charset=base64", b"<p>b</p>", "b"),
        ("text/html; charset=nonsense", "<p>ü</p>".encode(), "ü"),
        ("text/plain", b"<p>as it is</p>\xff", "<p>as it is</p>\ufffd"),
        ("application/json", b'{"a": 1}', '{"a": 1}'),
        ("application/ld+json", b"{}", "{}"),
        ("", b"<p>guessed</p>", "guessed"),
        ("", b"plain", "plain"),
    ],
)
def test_kinds_and_charsets(
    tmp_path: Path, sites: Callable[..., Site], content_type: str, body: bytes, shown: str
) -> None:
    """What is text is shown in its charset; HTML without its tags, all else as it is."""
    site = sites(a=page(body, content_type))
    assert tools(tmp_path, site).call("fetch_url", url=f"{site.url}/a").partition("\n")[2] == shown


def test_what_is_no_text_or_not_there_is_told(tmp_path: Path, sites: Callable[..., Site]) -> None:
    """A picture is named and not shown; an error of the server has its status and its words."""
    site = sites(
        pic=page(b"\x89PNG", "image/png"), gone=page(b"<p>not here</p>", status=404), bad=page(b"x", status=304)
    )
    fetch = tools(tmp_path, site)
    assert fetch.refusal("fetch_url", url=f"{site.url}/pic") == "binary_content"
    assert "answered HTTP 404: not here" in fetch.call("fetch_url", url=f"{site.url}/gone")
    assert fetch.refusal("fetch_url", url=f"{site.url}/bad") == "http_error"


def test_a_long_page_is_shown_in_parts_and_a_bomb_is_cut(tmp_path: Path, sites: Callable[..., Site]) -> None:
    """Characters from a place on; of a small body that unpacks to very much only so many bytes are read."""
    bomb = gzip.compress(b"0" * (64 << 20))
    site = sites(
        long=page(b"a" * 50_000 + b"end", "text/plain"), bomb=page(bomb, "text/plain", content_encoding="gzip")
    )
    fetch = tools(tmp_path, site)
    assert fetch.call("fetch_url", url=f"{site.url}/long").startswith(f"{site.url}/long: characters 1-40000 of 50003\n")
    rest = fetch.call("fetch_url", url=f"{site.url}/long", first_character=40_001)
    assert rest == f"{site.url}/long: characters 40001-50003 of 50003\n{'a' * 10_000}end"
    assert fetch.refusal("fetch_url", url=f"{site.url}/long", first_character=50_004) == "invalid_arguments"
    assert (
        fetch.call("fetch_url", url=f"{site.url}/bomb").partition("\n")[0].endswith(f"cut after {web.MAX_BYTES} bytes")
    )


def test_a_page_without_end_is_left(
    tmp_path: Path, sites: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that drips for ever, and redirects that do, are cut by one limit of time for all of it."""

    def drips(handler: Handler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not handler.server.over.wait(0.05):
            handler.wfile.write(b"x")
            handler.wfile.flush()

    monkeypatch.setattr(web, "MAX_SECONDS", 0.5)
    site = sites(a=drips)
    began = time.monotonic()
    assert tools(tmp_path, site).refusal("fetch_url", url=f"{site.url}/a") == "fetch_error"
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<ul><li>a<li>b &amp; c</ul>d", "- a\n- b & c\nd"),
        ("<table><tr><td>1<td>2<tr><td>3</table>", "1 2\n3"),
        ("<pre>  x\n\ty</pre>", "x\n\ty"),
        ("a<script>if (1 < 2) { '</p>' }</SCRIPT >b<style>c</style>d<!-- <p> -->e", "abde"),
        ("a < b and <3", "a < b and <3"),
        ("<a href=javascript:x>a</a> <a href='#b'>b</a> <a>c</a> <a href='http://[x'>d</a></a>", "a b c d"),
        ('<A data-href="/no" HREF="/y?a=1&amp;b=2">e</A>', "e <http://h/y?a=1&b=2>"),
        ("<p>one\n two</p>\n\n<p> three</p>", "one two\n\nthree"),
        ("unfinished <p", "unfinished"),
        ("<svg><text>no</text></svg>yes<script>never ended", "yes"),
    ],
)
def test_the_text_of_a_page(html: str, text: str) -> None:
    """Blocks are lines, lists and headings are marked, links name their place, what nobody sees is left out."""
    assert page_text(html, "http://h/z") == text


@given(st.text(alphabet="<>/!-&;#'\"= apre \nscriptl", max_size=80))
def test_no_page_is_a_crash(html: str) -> None:
    """Whatever a page holds, it has a text, and no script in it."""
    assert "<script" not in page_text(f"{html}<p>", "http://h/")


@pytest.mark.parametrize(
    "piece", ["<", "<!--", "<a x='", "<a href=", "</", "<![", "&#", "<pre>", "<script>", "<p \n", " \n"]
)
def test_a_page_that_is_made_to_hurt(piece: str) -> None:
    """The time is no square of the length."""
    began = time.monotonic()
    page_text(piece * (300_000 // len(piece)), "http://h/")
    assert time.monotonic() - began < 5


# --- what is allowed -----------------------------------------------------------------------------------------------


def test_a_page_needs_an_approval(tmp_path: Path, sites: Callable[..., Site]) -> None:
    """Nothing is asked, not even for a name, before it is allowed; the flag that is named allows that host alone."""
    site, other = sites(a=page(b"ok", "text/plain")), sites(a=page(b"no"))
    denied = tools(tmp_path, site, other, mode="ask")
    assert denied.refusal("fetch_url", url=f"{site.url}/a") == "not_allowed"
    pattern = f"fetch_url {site.url}/*"
    assert denied.notices == [
        f"a tool call was denied, since nobody is asked in this run; to allow such calls: --allow '{pattern}'"
    ]
    allowed = tools(tmp_path, site, other, mode="ask", allow=(pattern,))
    assert allowed.call("fetch_url", url=f"{site.url}/a").endswith("\nok")
    assert allowed.refusal("fetch_url", url=f"{other.url}/a") == "not_allowed"
    assert tools(tmp_path, site, deny=(pattern,)).refusal("fetch_url", url=f"{site.url}/a") == "not_allowed"
    assert (len(site.asked), other.asked) == (1, [])


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "x",
            "//h/a",
            "file:///etc/passwd",
            "ftp://h/a",
            "http://",
            "http://:80/",
            "http://h:99999/",
            "http://[::1",
        ),
        *(
            "http://user@h/",
            "http://h@127.0.0.1/",
            "http://h/a/../b",
            "http://h/%2e%2E/b",
            "http://h/./a",
            "http://h\\@x/",
        ),
        *("http://" + "a" * 64 + ".com/", "http://a..b/", "javascript:alert(1)", "data:text/html,x"),
    ],
)
def test_a_url_that_is_none_or_looks_like_another(tmp_path: Path, url: str) -> None:
    """Only plain http and https URLs are judged by patterns and fetched."""
    assert tools(tmp_path).refusal("fetch_url", url=url) == "invalid_arguments"


def test_a_url_is_judged_in_one_form(tmp_path: Path) -> None:
    """Capital letters, a dot at the end of a name or a port that goes without saying avoid no rule."""
    fetch = tools(tmp_path, deny=("fetch_url http://evil.invalid/*",))
    for url in (
        "HTTP://EVIL.invalid/a",
        "http://evil.invalid./a",
        "http://evil.invalid:80/a",
        " http://evil.invalid?a#b",
    ):
        assert fetch.refusal("fetch_url", url=url) == "not_allowed"
    assert fetch.refusal("fetch_url", url="http://none.invalid/a") == "fetch_error"


# --- redirects -----------------------------------------------------------------------------------------------------


def test_redirects_are_followed_and_each_is_judged(tmp_path: Path, sites: Callable[..., Site]) -> None:
    """From place to place within what is allowed; a place that is not, by pattern or by address, is not asked."""
    other = sites(b=page(b"secret", "text/plain"))
    site = sites(
        a=page(b"", status=302, location="b"),
        b=page(b"", status=308, location="/c"),
        c=page(b"there", "text/plain"),
        out=page(b"", status=301, location=f"{other.url}/b"),
        file=page(b"", status=302, location="file:///etc/passwd"),
        loop=page(b"", status=302, location="/loop"),
        metadata=page(b"", status=302, location="http://169.254.169.254/latest/"),
    )
    fetch = tools(tmp_path, site)
    assert fetch.call("fetch_url", url=f"{site.url}/a") == f"{site.url}/c: characters 1-5 of 5\nthere"
    assert fetch.refusal("fetch_url", url=f"{site.url}/out") == "not_allowed"
    assert fetch.refusal("fetch_url", url=f"{site.url}/file") == "invalid_arguments"
    assert fetch.refusal("fetch_url", url=f"{site.url}/metadata") == "not_allowed"
    site.asked.clear()
    assert fetch.refusal("fetch_url", url=f"{site.url}/loop") == "fetch_error"
    assert len(site.asked) == web.MAX_HOPS
    patterned = tools(tmp_path, site, other, mode="ask", allow=(f"fetch_url {site.url}/*",))
    assert patterned.refusal("fetch_url", url=f"{site.url}/out") == "not_allowed"
    assert other.asked == []


# --- addresses -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "127.1", "2130706433", "0x7f.0.0.1", "0", "0.0.0.0", "[::1]", "[::]"),  # noqa: S104
        *("[::ffff:127.0.0.1]", "10.0.0.1", "192.168.1.1", "172.16.0.1", "100.64.0.1", "169.254.169.254"),
        *("[fe80::1]", "[fc00::1]", "224.0.0.1", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "255.255.255.255"),
    ],
)
def test_this_machine_and_its_network_are_not_reached(tmp_path: Path, sites: Callable[..., Site], host: str) -> None:
    """However an address inside is written, and although every page is allowed, no connection is made to it."""
    site = sites(a=page(b"secret"))
    url = f"http://{host}:{site.server_address[1]}/a"
    fetch = tools(tmp_path)
    reasons = {"not_allowed"} if sys.platform == "linux" else {"not_allowed", "fetch_error"}
    assert fetch.refusal("fetch_url", url=url) in reasons
    assert site.asked == []


def test_a_host_inside_is_reached_only_at_the_port_that_is_named(tmp_path: Path, sites: Callable[..., Site]) -> None:
    """The user names hosts, with a port or without; the notice says how."""
    site, other = sites(a=page(b"ok", "text/plain")), sites(a=page(b"no"))
    fetch = tools(tmp_path, site)
    assert fetch.call("fetch_url", url=f"{site.url}/a").endswith("\nok")
    assert fetch.refusal("fetch_url", url=f"{other.url}/a") == "not_allowed"
    assert f"approvals.private_hosts: ['{other.host}']" in fetch.notices[0]
    for host in ("127.0.0.1", "LocalHost"):
        named = tools(tmp_path, private_hosts=(host,))
        assert named.call("fetch_url", url=f"http://{host}:{other.server_address[1]}/a").endswith("\nno")


def test_public_addresses_are_public() -> None:
    """Ordinary addresses of both kinds."""
    assert all(map(is_public, ("1.1.1.1", "8.8.8.8", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101")))


def test_a_connection_goes_to_the_address_that_was_checked(sites: Callable[..., Site]) -> None:
    """Whatever the name leads to by now; the server is told the name all the same."""
    site = sites(a=page(b"ok"))
    port = site.server_address[1]
    http = Http(f"http://name.invalid:{port}/a", ModelLimits(), shared=False)
    with http.get(f"http://name.invalid:{port}/a", {}, "127.0.0.1") as response:
        assert response.read(100) == b"ok"
    http.close()
    assert {name.lower(): value for name, value in site.asked[0][1].items()}["host"] == f"name.invalid:{port}"


def test_a_certificate_has_to_be_that_of_the_name(sites: Callable[..., Site], monkeypatch: pytest.MonkeyPatch) -> None:
    """Over TLS the name is verified and not the address."""
    site = sites(a=page(b"ok"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    site.socket = context.wrap_socket(site.socket, server_side=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    monkeypatch.setattr(http_module, "tls_context", tls_context.__wrapped__)
    for host in ("127.0.0.1", "name.invalid"):
        url = f"https://{host}:{site.server_address[1]}/a"
        http = Http(url, ModelLimits(), shared=False)
        wrong = pytest.raises(ProviderError, match="certificate") if host == "name.invalid" else nullcontext()
        with wrong, http.get(url, {}, "127.0.0.1") as response:
            assert response.read(100) == b"ok"
        http.close()
