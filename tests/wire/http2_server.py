"""A model server that speaks HTTP/2 over TLS and nothing else: one request, one streamed answer."""

import contextlib
import json
import socket
import ssl
import threading
from pathlib import Path
from typing import Any, Self

import h2.config
import h2.connection
import h2.events


class Http2Server:
    """Answers every request on a connection with the same body, in frames of a few bytes."""

    def __init__(self, certificate: Path, body: bytes) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        self._context.set_alpn_protocols(["h2"])
        self._body = body
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._listener.getsockname()[1]}/v1"
        self.requests: list[tuple[dict[str, str], dict[str, Any]]] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the client leaves when it has what it wants
            connection, _ = self._listener.accept()
            with self._context.wrap_socket(connection, server_side=True) as secured:
                self._serve(secured)

    def _serve(self, secured: ssl.SSLSocket) -> None:
        http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        http.initiate_connection()
        secured.sendall(http.data_to_send())
        heads: dict[int, dict[str, str]] = {}
        bodies: dict[int, bytes] = {}
        while data := secured.recv(65_536):
            for event in http.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    heads[event.stream_id], bodies[event.stream_id] = dict(event.headers), b""
                elif isinstance(event, h2.events.DataReceived):
                    bodies[event.stream_id] += event.data
                elif isinstance(event, h2.events.StreamEnded):
                    self.requests.append((heads[event.stream_id], json.loads(bodies[event.stream_id])))
                    self._answer(http, event.stream_id)
            secured.sendall(http.data_to_send())

    def _answer(self, http: h2.connection.H2Connection, stream: int) -> None:
        http.send_headers(stream, [(":status", "200"), ("content-type", "text/event-stream")])
        for at in range(0, len(self._body), 50):
            http.send_data(stream, self._body[at : at + 50])
        http.end_stream(stream)
