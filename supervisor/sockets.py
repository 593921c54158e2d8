"""The supervisor's two doors: one ROUTER for agents, one for viewers, bound before anybody is told of them.

Over ``ipc://`` the private folder is the guard. Over ``tcp://`` (loopback, the system chooses the ports) every client
needs the run's one key pair, which CURVE proves and the ZAP handler here checks.
"""

import contextlib
import os
import shutil
from pathlib import Path

import zmq
from zmq.utils import z85

from fanjoin.ipc.endpoints import Endpoints, ipc_endpoints, transport_for
from fanjoin.ipc.errors import UserError
from fanjoin.ipc.paths import socket_folder
from fanjoin.supervisor.loop import Loop

MAX_FRAME = 8 << 20
"""Bytes. ZeroMQ drops the connection of a peer that sends more; the codec refuses far less."""
MAX_UNREAD = 100
"""Frames of one peer that wait here for us; what it sends beyond them waits in its own memory."""
_ZAP = "inproc://zeromq.zap.01"


class Sockets:
    """Both ROUTERs of a supervisor, and the endpoints that lead to them."""

    def __init__(self, instance: Path, transport: str, loop: Loop) -> None:
        self._folder = socket_folder(instance)
        tcp = transport_for(transport) == "tcp"
        if not tcp:
            _make_private(self._folder)
        self._context = zmq.Context(io_threads=1)
        self._context.set(zmq.MAX_SOCKETS, self._context.get(zmq.SOCKET_LIMIT))  # 65,535, on Windows 16,383
        self._zap: zmq.Socket[bytes] | None = None
        self._client_key = b""
        self.back = self._router()
        self.front = self._router()
        self.endpoints = self._bind_tcp(instance, loop) if tcp else self._bind_ipc()

    def _router(self) -> "zmq.Socket[bytes]":
        router = self._context.socket(zmq.ROUTER)
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        router.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME)
        router.setsockopt(zmq.RCVHWM, MAX_UNREAD)
        router.setsockopt(zmq.LINGER, 2000)
        return router

    def _bind_ipc(self) -> Endpoints:
        endpoints = ipc_endpoints(self._folder)
        self._make_spool(Path(endpoints.spool))
        self.back.bind(endpoints.back)
        self.front.bind(endpoints.front)
        return endpoints

    def _bind_tcp(self, instance: Path, loop: Loop) -> Endpoints:
        spool = instance / "spool"
        self._make_spool(spool)
        server_public, server_secret = zmq.curve_keypair()
        client_public, client_secret = zmq.curve_keypair()
        self._client_key = z85.decode(client_public)
        self._zap = self._context.socket(zmq.REP)
        self._zap.bind(_ZAP)
        loop.watch(self._zap, self._answer_zap)
        addresses = []
        for router in (self.back, self.front):
            router.setsockopt(zmq.CURVE_SERVER, 1)
            router.setsockopt(zmq.CURVE_SECRETKEY, server_secret)
            router.setsockopt(zmq.ZAP_DOMAIN, b"fanjoin")
            port = router.bind_to_random_port("tcp://127.0.0.1")
            addresses.append(f"tcp://127.0.0.1:{port}")
        return Endpoints(
            back=addresses[0],
            front=addresses[1],
            spool=str(spool),
            server_key=server_public.decode(),
            client_public=client_public.decode(),
            client_secret=client_secret.decode(),
        )

    def _answer_zap(self) -> None:
        """Let in the run's own key and no other (ZAP, ZeroMQ RFC 27)."""
        assert self._zap is not None  # noqa: S101 - the callback of this very socket
        version, request_id, _domain, _address, _identity, mechanism, *credentials = self._zap.recv_multipart()
        known = mechanism == b"CURVE" and credentials == [self._client_key]
        status, text = (b"200", b"OK") if known else (b"400", b"unknown key")
        self._zap.send_multipart([version, request_id, status, text, b"owner" if known else b"", b""])

    def _make_spool(self, spool: Path) -> None:
        spool.mkdir(mode=0o700, exist_ok=True)

    def close(self) -> None:
        """Send what is queued, free the sockets, remove their folder."""
        for socket in (self.back, self.front, self._zap):
            if socket is not None:
                socket.close()
        self._context.term()
        with contextlib.suppress(OSError):
            shutil.rmtree(self._folder)


def _make_private(folder: Path) -> None:
    """Make a folder that is ours alone, or refuse to use one that is not."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    info = folder.lstat()
    if hasattr(os, "geteuid") and (info.st_uid != os.geteuid() or info.st_mode & 0o077):
        raise UserError(f"The folder for sockets {folder} belongs to somebody else or is open to others; remove it.")
