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

    A routing id is a claim; the nonce of the hello, which came through the process's own pipe, is the proof. What
    comes from an unknown or unproven peer is dropped.
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

    def expect(self, attempt_id: str, nonce: str) -> None:
        """Let a process in that is about to be started."""
        self.peers[attempt_id] = Peer(nonce=nonce)

    def forget(self, attempt_id: str) -> None:
        """Let a process in no more."""
        self.peers.pop(attempt_id, None)

    def drain(self) -> None:
        """Read what has arrived, at most a batch, so that a flood cannot keep the loop from its other work."""
        for _ in range(_BATCH):
            try:
                parts = self._router.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._take(parts)

    def _take(self, parts: list[bytes]) -> None:
        attempt_id = parts[0].decode("utf-8", "replace")
        peer = self.peers.get(attempt_id)
        if peer is None:
            self.send_to(parts[0], Reject(reason="unknown process"))
            return
        try:
            message = self._codec.decode(parts[-1] if len(parts) == 2 else b"")  # noqa: PLR2004 - routing id, frame
            self._check(peer, attempt_id, message)
        except BadFrameError as error:
            peer.bad_frames += peer.greeted  # before the hello it may be anybody who took this name
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
        try:
            self.send_to(attempt_id.encode(), message)
        except (OSError, BadFrameError) as error:  # it is large, and the spool has no room
            self._misbehaved(attempt_id, f"A message to it could not be sent: {error}")

    def send_to(self, routing_id: bytes, message: ToAgent) -> None:
        """Send to a routing id without waiting."""
        try:
            self._router.send_multipart([routing_id, self._codec.encode(message)], zmq.NOBLOCK)
        except zmq.ZMQError:
            return
