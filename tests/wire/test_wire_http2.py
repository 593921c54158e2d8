"""HTTP/2, which the extra ``http2`` brings: used where a server speaks it over TLS, and loaded only then."""

import subprocess
import sys
from pathlib import Path

import chat_forms
import pytest
from agent_support import KEY, task
from http2_server import Http2Server
from wire_support import HELLO, QUICK

from fanjoin.agent_proc.http import tls_context
from fanjoin.agent_proc.provider.modes import open_client
from fanjoin.ipc.settings import Endpoint

CERTIFICATE = Path(__file__).parents[1] / "agent" / "loopback.pem"


def test_a_server_that_speaks_http2_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two calls over one connection of HTTP/2, each answer read as it is over HTTP/1.1."""
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    from fanjoin.agent_proc import http

    tls_context.cache_clear()
    http._transport.cache_clear()
    try:
        with Http2Server(CERTIFICATE, chat_forms.HELLO + chat_forms.DONE) as server:
            client = open_client(Endpoint(base_url=server.url, model="m", api_key=KEY), task(model_limits=QUICK))
            assert [client.complete(HELLO, [], lambda _: None).text for _ in range(2)] == ["hello"] * 2
            client.close()
    finally:
        tls_context.cache_clear()
        http._transport.cache_clear()
    heads = [head for head, _ in server.requests]
    assert [head[":path"] for head in heads] == ["/v1/chat/completions"] * 2
    assert heads[0]["authorization"] == f"Bearer {KEY}"
    assert server.requests[0][1]["messages"] == HELLO


def test_nobody_who_does_not_use_it_pays_for_it() -> None:
    """Where the extra is installed an agent's start loads nothing of it."""
    code = "import sys, fanjoin.agent_proc.main; print([n for n in ('h2', 'hpack', 'hyperframe') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
