"""Bodies of the Responses API of OpenAI, and what each has to be read as."""

from wire_support import Form


def _event(name: bytes, data: bytes) -> bytes:
    return b"event: response." + name + b'\ndata: {"type":"response.' + name + b'",' + data + b"}\n\n"


def _text(index: int, text: bytes) -> bytes:
    return _event(b"output_text.delta", b'"item_id":"msg_1","output_index":%d,"delta":"%b"' % (index, text))


def _added(index: int, item: bytes) -> bytes:
    return _event(b"output_item.added", b'"output_index":%d,"item":%b' % (index, item))


def _done(index: int, item: bytes) -> bytes:
    return _event(b"output_item.done", b'"output_index":%d,"item":%b' % (index, item))


def _completed(*items: bytes, more: bytes = b'"status":"completed"', name: bytes = b"completed") -> bytes:
    return _event(name, b'"response":{"id":"resp_1",%b,"output":[%b],%b}' % (more, b",".join(items), COUNTS))


COUNTS = (
    b'"error":null,"usage":{"input_tokens":20,"input_tokens_details":{"cached_tokens":8},"output_tokens":12,'
    b'"output_tokens_details":{"reasoning_tokens":7},"total_tokens":32}'
)
USAGE = (20, 12, 8, 7)
CREATED = _event(b"created", b'"response":{"id":"resp_1","status":"in_progress","error":null,"output":[]}')
MESSAGE = (
    b'{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text",'
    b'"text":"hello","annotations":[]}]}'
)
OPEN_MESSAGE = b'{"type":"message","id":"msg_1","role":"assistant","status":"in_progress","content":[]}'
CALL = b'{"type":"function_call","id":"fc_1","call_id":"call_1","name":"look","arguments":"{\\"at\\": 1}"}'
OPEN_CALL = CALL.replace(b'{\\"at\\": 1}', b"")
OTHER = b'{"type":"function_call","id":"fc_2","call_id":"call_2","name":"find","arguments":"{}"}'
REASONING = (
    b'{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"Zm9v",'
    b'"status":"completed"}'
)
HELLO = CREATED + _added(0, OPEN_MESSAGE) + _text(0, b"hel") + _text(0, b"lo") + _done(0, MESSAGE)
ARGUMENTS = b"".join(
    _event(b"function_call_arguments.delta", b'"item_id":"fc_1","output_index":1,"delta":"%b"' % piece)
    for piece in (b'{\\"at\\"', b": 1}")
)
CALLED = (("call_1", "look", '{"at": 1}'),)

FORMS: dict[str, Form] = {
    "as documented": Form(body=HELLO + _completed(MESSAGE), text="hello", usage=USAGE),
    "data lines alone": Form(
        body=b"".join(
            line + b"\n\n" for line in (HELLO + _completed(MESSAGE)).split(b"\n") if line.startswith(b"data")
        ),
        text="hello",
        usage=USAGE,
    ),
    "[DONE] at the end": Form(body=HELLO + _completed(MESSAGE) + b"data: [DONE]\n\n", text="hello", usage=USAGE),
    "nothing repeated at the end": Form(body=HELLO + _completed(), text="hello", usage=USAGE),
    "no deltas": Form(body=CREATED + _done(0, MESSAGE) + _completed(MESSAGE), text="hello", usage=USAGE),
    "no index": Form(body=(HELLO + _completed(MESSAGE)).replace(b'"output_index":0,', b""), text="hello", usage=USAGE),
    "other ids and indexes at the end": Form(
        body=(HELLO + _added(1, OPEN_CALL) + ARGUMENTS).replace(b'"output_index":0', b'"output_index":7')
        + _completed(MESSAGE.replace(b"msg_1", b"msg_9"), CALL.replace(b"fc_1", b"fc_9")),
        text="hello",
        calls=CALLED,
        finish="tool_calls",
        usage=USAGE,
    ),
    "[DONE] and no last event": Form(
        body=HELLO + _added(1, OPEN_CALL) + ARGUMENTS + b"data: [DONE]\n\n",
        text="hello",
        calls=CALLED,
        finish="tool_calls",
    ),
    "arguments at once": Form(
        body=CREATED
        + _added(0, OPEN_CALL)
        + _event(b"function_call_arguments.done", b'"output_index":0,"arguments":"{\\"at\\": 1}"')
        + _completed(),
        calls=CALLED,
        finish="tool_calls",
        usage=USAGE,
    ),
    "thoughts of a local server": Form(
        body=CREATED
        + _event(b"reasoning_text.delta", b'"item_id":"rs_1","output_index":0,"delta":"hm"')
        + _text(1, b"hello")
        + _completed(b'{"type":"reasoning","id":"rs_2","content":[{"type":"reasoning_text","text":"hm"}]}', MESSAGE),
        text="hello",
        usage=USAGE,
        reasoning="hm",
    ),
    "plain, content as a text": Form(
        body=b'{"status":"completed","output":[{"type":"message","content":"hello"}]}', text="hello"
    ),
    "text and a call": Form(
        body=HELLO + _added(1, OPEN_CALL) + ARGUMENTS + _done(1, CALL) + _completed(MESSAGE, CALL),
        text="hello",
        calls=CALLED,
        finish="tool_calls",
        usage=USAGE,
    ),
    "a call of deltas alone": Form(
        body=HELLO + _added(1, OPEN_CALL) + ARGUMENTS + _completed(),
        text="hello",
        calls=CALLED,
        finish="tool_calls",
        usage=USAGE,
    ),
    "two calls": Form(
        body=CREATED + _done(0, CALL) + _done(1, OTHER) + _completed(CALL, OTHER),
        calls=(*CALLED, ("call_2", "find", "{}")),
        finish="tool_calls",
        usage=USAGE,
    ),
    "reasoning": Form(
        body=CREATED
        + _event(b"reasoning_summary_text.delta", b'"item_id":"rs_1","output_index":0,"delta":"hm"')
        + _done(0, REASONING)
        + _added(1, OPEN_MESSAGE)
        + _text(1, b"hello")
        + _completed(REASONING, MESSAGE),
        text="hello",
        usage=USAGE,
        reasoning="hm",
        thoughts=1,
    ),
    "reasoning at the end alone": Form(
        body=CREATED + _completed(REASONING, MESSAGE), text="hello", usage=USAGE, reasoning="hm", thoughts=1
    ),
    "cut by its length": Form(
        body=HELLO
        + _completed(
            MESSAGE,
            more=b'"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}',
            name=b"incomplete",
        ),
        text="hello",
        finish="length",
        usage=USAGE,
    ),
    "plain": Form(
        body=b'{"id":"resp_1","status":"completed","output":[' + MESSAGE + b"]," + COUNTS + b"}",
        text="hello",
        usage=USAGE,
    ),
    "plain, reasoning and calls": Form(
        body=b'{"status":"completed","output":[' + REASONING + b"," + CALL + b"," + OTHER + b"]," + COUNTS + b"}",
        calls=(*CALLED, ("call_2", "find", "{}")),
        finish="tool_calls",
        usage=USAGE,
        reasoning="hm",
        thoughts=1,
    ),
}
