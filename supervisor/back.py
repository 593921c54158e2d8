"""The agents' door: who may speak, what a frame is worth, and what is sent back."""

from collections.abc import Callable

import zmq
from msgspec import Struct

from fanjoin.ipc.codec import Codec
from fanjoin.ipc.errors import BadFrameError
from fanjoin.ipc.messages import PROTOCOL_VERSION, Bye, FromAgent, Hello, Reject, Result, ToAgent

FORGIVEN_FRAMES = 3
"""So many frames of a process that are no message of its own end it."""
_BATCH = 500


class Peer(Struct, kw_only=True):
    """One agent process: what it must prove, and what it has shown so far."""

    nonce: str
    greeted: bool = False
    bad_frames: int = 0
    result_seen: bool = False
    childless: bool = False


class BackDoor:
    """Reads and checks the agents' frames.

    A process's routing id is its nonce, which came through its own pipe: nobody else can guess it, and so nobody can
    take its place. What comes under another routing id is answered with a reject.
    """

    def __init__(
        self,
        router: "zmq.Socket[bytes]",
        codec: Codec[FromAgent],
        run_id: str,
        heard: Callable[[FromAgent], None],
        misbehaved: Callable[[str, str], None],
    ) -> None:
        self._router = router
        self._codec = codec
        self._run_id = run_id
        self._heard = heard
        self._misbehaved = misbehaved
        self.peers: dict[str, Peer] = {}
        self._attempts: dict[bytes, str] = {}

    def expect(self, attempt_id: str, nonce: str) -> None:
        """Let a process in that is about to be started."""
        self.peers[attempt_id] = Peer(nonce=nonce)
        self._attempts[nonce.encode()] = attempt_id

    def forget(self, attempt_id: str) -> None:
        """Let a process in no more."""
        peer = self.peers.pop(attempt_id, None)
        if peer is not None:
            del self._attempts[peer.nonce.encode()]

    def drain(self) -> None:
        """Read what has arrived, at most a batch, so that a flood cannot keep the loop from its other work."""
        for _ in range(_BATCH):
            try:
                parts = self._router.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._take(parts)

    def _take(self, parts: list[bytes]) -> None:
        attempt_id = self._attempts.get(parts[0])
        if attempt_id is None:
            self._send(parts[0], Reject(reason="unknown process"))
            return
        peer = self.peers[attempt_id]
        try:
            message = self._codec.decode(parts[-1] if len(parts) == 2 else b"")  # noqa: PLR2004 - routing id, frame
            self._check(peer, attempt_id, message)
        except BadFrameError as error:
            peer.bad_frames += 1
            if peer.bad_frames == FORGIVEN_FRAMES:
                self._misbehaved(attempt_id, f"{FORGIVEN_FRAMES} frames broke the protocol; the last one: {error}")
            return
        peer.result_seen |= isinstance(message, Result)
        peer.childless |= isinstance(message, Bye) and message.childless
        self._heard(message)

    def _check(self, peer: Peer, attempt_id: str, message: FromAgent) -> None:
        if message.attempt_id != attempt_id or message.run_id != self._run_id:
            raise BadFrameError(f"it carries another identity ({message.attempt_id})")
        if isinstance(message, Hello):
            if message.nonce != peer.nonce or message.protocol != PROTOCOL_VERSION:
                raise BadFrameError("its hello has a wrong nonce or protocol version")
            peer.greeted = True
        elif not peer.greeted:
            raise BadFrameError("it spoke before its hello")

    def send(self, attempt_id: str, message: ToAgent) -> None:
        """Send without waiting. A process that is gone, or reads nothing, gets nothing; its exit or timers tell."""
        peer = self.peers.get(attempt_id)
        if peer is None:
            return
        try:
            self._send(peer.nonce.encode(), message)
        except (OSError, BadFrameError) as error:  # it is large, and the spool has no room
            self._misbehaved(attempt_id, f"A message to it could not be sent: {error}")

    def _send(self, routing_id: bytes, message: ToAgent) -> None:
        try:
            self._router.send_multipart([routing_id, self._codec.encode(message)], zmq.NOBLOCK)
        except zmq.ZMQError:
            return
