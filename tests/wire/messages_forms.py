"""Bodies of the Messages API of Anthropic, and what each has to be read as."""

from wire_support import Form


def _event(name: bytes, data: bytes) -> bytes:
    return b"event: " + name + b'\ndata: {"type":"' + name + b'",' + data + b"}\n\n"


def _begin(index: int, block: bytes) -> bytes:
    return _event(b"content_block_start", b'"index":%d,"content_block":%b' % (index, block))


def _add(index: int, kind: bytes, name: bytes, text: bytes) -> bytes:
    delta = b'{"type":"' + kind + b'","' + name + b'":"' + text + b'"}'
    return _event(b"content_block_delta", b'"index":%d,"delta":%b' % (index, delta))


def _end(index: int) -> bytes:
    return _event(b"content_block_stop", b'"index":%d' % index)


START = _event(
    b"message_start",
    b'"message":{"id":"msg_1","role":"assistant","content":[],"stop_reason":null,"usage":{"input_tokens":5,'
    b'"cache_creation_input_tokens":100,"cache_read_input_tokens":40,"output_tokens":1}}',
)
STOP = (
    _event(b"message_delta", b'"delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":15}')
    + b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)
PING = b'event: ping\ndata: {"type": "ping"}\n\n'
TEXT = _begin(0, b'{"type":"text","text":""}') + PING + _add(0, b"text_delta", b"text", b"hel")
HELLO = START + TEXT + _add(0, b"text_delta", b"text", b"lo") + _end(0)
CALL = (
    _begin(1, b'{"type":"tool_use","id":"toolu_1","name":"look","input":{}}')
    + _add(1, b"input_json_delta", b"partial_json", b"")
    + _add(1, b"input_json_delta", b"partial_json", b'{\\"at\\":')
    + _add(1, b"input_json_delta", b"partial_json", b" 1}")
    + _end(1)
)
THINKING = (
    _begin(0, b'{"type":"thinking","thinking":"","signature":""}')
    + _add(0, b"thinking_delta", b"thinking", b"hm ")
    + _add(0, b"thinking_delta", b"thinking", b"so")
    + _add(0, b"signature_delta", b"signature", b"c2ln")
    + _end(0)
)
USAGE = (145, 15, 40, 0)
BLOCKS = b'{"type":"message","content":[%b],"stop_reason":"%b","usage":{"input_tokens":5,"output_tokens":15}}'
SAID = b'{"type":"text","text":"hello"}'

FORMS: dict[str, Form] = {
    "as documented": Form(body=HELLO + STOP, text="hello", usage=USAGE),
    "CRLF and no space": Form(
        body=(HELLO + STOP).replace(b"\n", b"\r\n").replace(b"data: ", b"data:"), text="hello", usage=USAGE
    ),
    "no message_stop": Form(body=HELLO + STOP.partition(b"event: message_stop")[0], text="hello", usage=USAGE),
    "an unknown event": Form(body=HELLO + _event(b"future_event", b'"a":1') + STOP, text="hello", usage=USAGE),
    "text and a call": Form(
        body=HELLO + CALL + STOP.replace(b"end_turn", b"tool_use"),
        text="hello",
        calls=(("toolu_1", "look", '{"at": 1}'),),
        finish="tool_calls",
        usage=USAGE,
    ),
    "two calls, the first without arguments": Form(
        body=START
        + _begin(0, b'{"type":"tool_use","id":"toolu_0","name":"find","input":{}}')
        + _end(0)
        + CALL
        + STOP.replace(b"end_turn", b"tool_use"),
        calls=(("toolu_0", "find", ""), ("toolu_1", "look", '{"at": 1}')),
        finish="tool_calls",
        usage=USAGE,
    ),
    "thinking": Form(
        body=START
        + THINKING
        + _begin(1, b'{"type":"redacted_thinking","data":"ZGF0YQ=="}')
        + _end(1)
        + _begin(2, b'{"type":"text","text":""}')
        + _add(2, b"text_delta", b"text", b"hello")
        + STOP,
        text="hello",
        usage=USAGE,
        reasoning="hm so",
        thoughts=2,
    ),
    "max_tokens": Form(
        body=HELLO + STOP.replace(b"end_turn", b"max_tokens"), text="hello", finish="length", usage=USAGE
    ),
    "the window is full": Form(
        body=HELLO + STOP.replace(b"end_turn", b"model_context_window_exceeded"),
        text="hello",
        finish="length",
        usage=USAGE,
    ),
    "counts null at the end": Form(
        body=HELLO + STOP.replace(b'"output_tokens":15', b'"output_tokens":15,"input_tokens":null'),
        text="hello",
        usage=USAGE,
    ),
    "input counted at the beginning alone": Form(
        body=HELLO + STOP.replace(b'"output_tokens":15', b'"output_tokens":15,"input_tokens":0'),
        text="hello",
        usage=USAGE,
    ),
    "input counted at the end alone": Form(
        body=HELLO.replace(b'"input_tokens":5', b'"input_tokens":0')
        + STOP.replace(b'"output_tokens":15', b'"output_tokens":15,"input_tokens":5'),
        text="hello",
        usage=USAGE,
    ),
    "a call whose input comes at once": Form(
        body=START
        + _begin(0, b'{"type":"tool_use","id":"toolu_1","name":"look","input":{"at":1}}')
        + _end(0)
        + STOP.replace(b"end_turn", b"tool_use"),
        calls=(("toolu_1", "look", '{"at":1}'),),
        finish="tool_calls",
        usage=USAGE,
    ),
    "no beginning of a block": Form(
        body=START + _add(0, b"text_delta", b"text", b"hello") + STOP, text="hello", usage=USAGE
    ),
    "plain, content as a text": Form(body=b'{"content":"hello","stop_reason":"end_turn"}', text="hello"),
    "plain": Form(body=BLOCKS % (SAID, b"end_turn"), text="hello", usage=(5, 15, 0, 0)),
    "plain, thinking and a call": Form(
        body=BLOCKS
        % (
            b'{"type":"thinking","thinking":"hm","signature":"x"},' + SAID + b","
            b'{"type":"tool_use","id":"toolu_1","name":"look","input":{"at":1}}',
            b"tool_use",
        ),
        text="hello",
        calls=(("toolu_1", "look", '{"at":1}'),),
        finish="tool_calls",
        usage=(5, 15, 0, 0),
        reasoning="hm",
        thoughts=1,
    ),
}
