"""Images of a submission: told apart by their content, named by their SHA-256, kept in files of their own."""

import base64
import binascii
import hashlib
import os
from pathlib import Path

from fanjoin.ipc import platform
from fanjoin.ipc.messages import JsonObject

MOST_BYTES = 20 << 20
_MARKS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
GONE = "[an image that is not kept any more]"
"""What the model reads in its place."""
_REFERENCE = "fanjoin-image:"


def media_type_of(data: bytes) -> str | None:
    """Return what kind of image this is (PNG, JPEG, WebP or GIF), by its first bytes; None when it is none."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((media_type for mark, media_type in _MARKS if data.startswith(mark)), None)


def as_submitted(data: bytes) -> JsonObject:
    """Return an image as a submission carries it.

    Raises:
        ValueError: it is no image, or too large; the message ends a sentence that names it.
    """
    media_type = media_type_of(data)
    if len(data) > MOST_BYTES:
        raise ValueError(f"has more than {MOST_BYTES:,} bytes (20 MiB), the limit")
    if media_type is None:
        raise ValueError("is not a PNG, JPEG, WebP or GIF image")
    digest = hashlib.sha256(data).hexdigest()
    return {"media_type": media_type, "sha256": digest, "data": base64.b64encode(data).decode()}


def keep(folder: Path, image: JsonObject) -> JsonObject:
    """Put the bytes of a submitted image into a file, on disk before anything refers to them; return its name alone.

    Raises:
        ValueError: it is not what it says, or its bytes are neither here nor known; the message says so.
        OSError: it cannot be written.
    """
    digest, media_type, data = image.get("sha256"), image.get("media_type"), image.get("data")
    if not isinstance(digest, str) or len(digest) != 64 or not digest.isalnum():  # noqa: PLR2004 - SHA-256 in hex
        raise ValueError("sha256 has to be 64 hexadecimal digits")
    path = folder / digest
    if data is not None:
        content = _decoded(data)
        if hashlib.sha256(content).hexdigest() != digest or as_submitted(content)["media_type"] != media_type:
            raise ValueError(f"the image {digest} is not what its sha256 and media_type say")
        if not path.exists():
            _write(path, content)
    elif not path.exists():
        raise ValueError(f"the image {digest} is not known here: send its data")
    return {"media_type": media_type, "sha256": digest}


def _decoded(data: object) -> bytes:
    try:
        return base64.b64decode(str(data), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"data is not base64: {error}") from error


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    platform.replace(part, path)


def image_part(image: JsonObject) -> JsonObject:
    """Return the part of a stored message that stands for an image."""
    return {"type": "image_url", "image_url": {"url": f"{_REFERENCE}{image['media_type']};{image['sha256']}"}}


def with_data(folder: Path, image: JsonObject) -> JsonObject | None:
    """Return a named image with its bytes again; None when its file is gone or cannot be read."""
    try:
        data = base64.b64encode((folder / str(image["sha256"])).read_bytes()).decode()
    except OSError:
        return None
    return {"media_type": image["media_type"], "sha256": image["sha256"], "data": data}


def filled_in(folder: Path, message: JsonObject) -> JsonObject:
    """Return a stored message with the bytes of its images; one whose file is gone becomes a note."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "content": [_filled_part(folder, part) for part in content]}


def _filled_part(folder: Path, part: JsonObject) -> JsonObject:
    url = str((part.get("image_url") or {}).get("url", "")) if part.get("type") == "image_url" else ""
    if not url.startswith(_REFERENCE):
        return part
    media_type, _, digest = url.removeprefix(_REFERENCE).partition(";")
    image = with_data(folder, {"media_type": media_type, "sha256": digest})
    if image is None:
        return {"type": "text", "text": GONE}
    return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{image['data']}"}}
