"""Text as it enters and leaves: surrogates replaced, secrets masked, long texts cut in the middle."""

_OBEYED = {code: "\ufffd" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"}
_SHOW_TAIL_FROM = 16  # characters; four letters of a shorter secret would be too much of it


def clean(text: str) -> str:
    """Replace lone surrogates by U+FFFD; everything else, NUL included, stays as it is."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def harmless(text: str) -> str:
    """Replace what a terminal would obey, control characters other than tabs and line ends, by U+FFFD."""
    return text.replace("\r\n", "\n").translate(_OBEYED)


def clean_tree(value: object) -> object:
    """Return a JSON value with every string in it, keys included, cleaned."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list | tuple):
        return [clean_tree(item) for item in value]
    if isinstance(value, dict):
        return {clean(str(key)): clean_tree(item) for key, item in value.items()}
    return value


def mask_secret(secret: str) -> str:
    """Return what may be shown of a secret: nothing of a short one, the last four letters of a long one."""
    if not secret:
        return "(none)"
    return f"…{secret[-4:]}" if len(secret) >= _SHOW_TAIL_FROM else "…"


def mask_in(text: str, secret: str) -> str:
    """Return the text with every occurrence of the secret masked."""
    return text.replace(secret, mask_secret(secret)) if secret else text


def clip(text: str, limit: int) -> str:
    """Return at most ``limit`` characters, ending in an ellipsis when something was cut."""
    return text if len(text) <= limit else text[: max(0, limit - 1)] + "…"


def head_and_tail(text: str, limit: int) -> str:
    """Return at most about ``limit`` characters: the beginning and the end, with a line that says what is missing."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    return f"{text[:head]}\n[... {len(text) - head - tail} characters left out ...]\n{text[len(text) - tail :]}"
