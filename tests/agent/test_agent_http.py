"""The one module that knows httpx: proxies, certificates, and what its import costs."""

import re
import ssl
import subprocess
import sys
from pathlib import Path

import certifi
import pytest

from fanjoin.agent_proc.http import Http, proxy_for, tls_context
from fanjoin.agent_proc.provider.failure import ProviderError
from fanjoin.ipc.settings import ModelLimits

PACKAGE = Path(__file__).parents[2] / "agent_proc"
PROXY_NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take proxies and certificates out of the environment."""
    for name in (*PROXY_NAMES, *map(str.lower, PROXY_NAMES), "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


def run_python(code: str) -> str:
    """Run code in a fresh interpreter and return what it prints."""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


def test_one_module_imports_httpx() -> None:
    """No other module of the package names httpx or what it is made of in an import."""
    pattern = re.compile(r"^\s*(from|import) (httpx|httpcore|h11)\b", re.MULTILINE)
    found = [path.name for path in PACKAGE.rglob("*.py") if pattern.search(path.read_text(encoding="utf-8"))]
    assert found == ["http.py"]


def test_the_import_is_lean_and_leaves_no_trace() -> None:
    """Neither a command line nor asynchronous libraries are imported, and others may still import them."""
    code = (
        "import sys, fanjoin.agent_proc.main\n"
        "print([n for n in ('click', 'rich', 'anyio', 'trio', 'asyncio', 'sqlite3') if n in sys.modules])\n"
        "import anyio"
    )
    assert run_python(code).strip() == "[]"


def test_proxies_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each scheme has its proxy, ALL_PROXY stands for the others, NO_PROXY and loopback go direct."""
    monkeypatch.setenv("HTTPS_PROXY", "http://secure:1")
    monkeypatch.setenv("ALL_PROXY", "other:2")
    monkeypatch.setenv("NO_PROXY", "inside.example,.lan")
    assert proxy_for("https", "model.example") == "http://secure:1"
    assert proxy_for("http", "model.example") == "http://other:2"
    assert proxy_for("https", "inside.example") is None
    assert proxy_for("https", "a.lan") is None
    assert [proxy_for("http", host) for host in ("localhost", "127.0.0.1", "::1")] == [None] * 3


def test_no_proxy_at_all() -> None:
    """Without variables there is no proxy."""
    assert proxy_for("http", "model.example") is None


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:9", "nonsense://x"])
def test_a_proxy_that_we_cannot_use(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    """A kind of proxy that is not supported is one clear failure."""
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(ProviderError, match=r"cannot be made") as caught:
        Http("http://model.example/v1", ModelLimits())
    assert (caught.value.reason, caught.value.retryable) == ("bad_request", False)


@pytest.mark.parametrize("name", ["REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"])
def test_certificates_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    """A file of certificates named by the environment is the one that counts."""
    bundle = tmp_path / "one.pem"
    pem = Path(certifi.where()).read_text(encoding="utf-8")
    one = pem[pem.index("-----BEGIN") : pem.index("-----END CERTIFICATE-----") + 25]
    bundle.write_text(one, encoding="utf-8")
    monkeypatch.setenv(name, str(bundle))
    assert len(tls_context.__wrapped__().get_ca_certs()) == 1


def test_the_tls_context_is_made_once() -> None:
    """Every client shares one context, which verifies."""
    context = tls_context()
    assert context is tls_context()
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname
    assert len(context.get_ca_certs()) > 10
