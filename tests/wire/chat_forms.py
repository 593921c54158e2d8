"""Bodies of the chat-completions API as servers send them, and what each has to be read as."""

from wire_support import Form

BOM = b"\xef\xbb\xbf"
DONE = b"data: [DONE]\n\n"
HEL = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"hel"},"finish_reason":null}]}\n\n'
LO = b'data: {"choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":null}]}\n\n'
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
COUNTS = b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}\n\n'
HELLO = HEL + LO + STOP


def _delta(delta: bytes, finish: bytes = b"null") -> bytes:
    return b'data: {"choices":[{"index":0,"delta":' + delta + b',"finish_reason":' + finish + b"}]}\n\n"


def _call(piece: bytes) -> bytes:
    return _delta(b'{"tool_calls":[' + piece + b"]}")


def _message(message: bytes, finish: bytes = b'"stop"', more: bytes = b"") -> bytes:
    return b'{"choices":[{"index":0,"message":' + message + b',"finish_reason":' + finish + b"}]" + more + b"}"


CALLED = _delta(b"{}", b'"tool_calls"') + DONE
ONE = (("a", "look", '{"at": 1}'),)
TWO = (("a", "look", "{}"), ("b", "find", '{"n": 2}'))
A = b'{"index":0,"id":"a","type":"function","function":{"name":"look","arguments":""}}'
B = b'{"index":1,"id":"b","type":"function","function":{"name":"find","arguments":""}}'

TEXTS: dict[str, Form] = {
    "as documented": Form(body=HELLO + COUNTS + DONE, text="hello", usage=(9, 2, 0, 0)),
    "comments before, between and after": Form(
        body=b": OPENROUTER PROCESSING\n\n" + HEL + b":\n\n: keep-alive\n" + LO + STOP + b": bye\n\n" + DONE,
        text="hello",
    ),
    "a comment after an id": Form(body=b"id: 1\n" + HEL + b"id: 2\n: ping\n\n" + LO + STOP + DONE, text="hello"),
    "event names": Form(body=(HELLO + DONE).replace(b"data:", b"event: message\ndata:"), text="hello"),
    "no [DONE]": Form(body=HELLO, text="hello"),
    "no finish_reason": Form(body=HEL + LO + DONE, text="hello", finish=""),
    "no last empty line": Form(body=HELLO.rstrip(), text="hello"),
    "CRLF": Form(body=(HELLO + DONE).replace(b"\n", b"\r\n"), text="hello"),
    "CR": Form(body=(HELLO + DONE).replace(b"\n", b"\r"), text="hello"),
    "no space after data": Form(body=(HELLO + DONE).replace(b"data: ", b"data:"), text="hello"),
    "byte order mark": Form(body=BOM + HELLO + DONE, text="hello"),
    "letters of many bytes": Form(
        body=HELLO.replace(b"hel", "größe ".encode()).replace(b'"lo"', '"😀 𐍈"'.encode()) + DONE, text="größe 😀 𐍈"
    ),
    "a lone surrogate": Form(body=HELLO.replace(b"hel", b"\\ud83d"), text="\ufffdlo"),
    "data in several lines": Form(
        body=b'data: {"choices":\ndata: [{"delta":{"content":"hello"},\ndata: "finish_reason":"stop"}]}\n\n',
        text="hello",
    ),
    "choices null with the counts": Form(
        body=HELLO + COUNTS.replace(b"[]", b"null") + DONE, text="hello", usage=(9, 2, 0, 0)
    ),
    "no choices with the counts": Form(
        body=HELLO + COUNTS.replace(b'"choices":[],', b"") + DONE, text="hello", usage=(9, 2, 0, 0)
    ),
    "counts in every chunk": Form(
        body=HELLO.replace(b"}]}", b'}],"usage":{"prompt_tokens":9,"completion_tokens":2}}') + DONE,
        text="hello",
        usage=(9, 2, 0, 0),
    ),
    "cached and reasoning tokens": Form(
        body=HELLO
        + COUNTS.replace(
            b'"total_tokens":11',
            b'"prompt_tokens_details":{"cached_tokens":8},"completion_tokens_details":{"reasoning_tokens":1}',
        )
        + DONE,
        text="hello",
        usage=(9, 2, 8, 1),
    ),
    "counts of Groq": Form(
        body=HELLO.replace(
            b'"stop"}]', b'"stop"}],"x_groq":{"id":"req_1","usage":{"prompt_tokens":9,"completion_tokens":2}}'
        )
        + DONE,
        text="hello",
        usage=(9, 2, 0, 0),
    ),
    "counts of Moonshot": Form(
        body=HELLO.replace(
            b'"finish_reason":"stop"',
            b'"finish_reason":"stop","usage":{"prompt_tokens":9,"completion_tokens":2,"cached_tokens":4}',
        )
        + DONE,
        text="hello",
        usage=(9, 2, 4, 0),
    ),
    "counts of DeepSeek": Form(
        body=HELLO
        + COUNTS.replace(b'"total_tokens":11', b'"prompt_cache_hit_tokens":6,"prompt_cache_miss_tokens":3')
        + DONE,
        text="hello",
        usage=(9, 2, 6, 0),
    ),
    "a filter's chunk of Azure": Form(
        body=HEL
        + b'data: {"choices":[{"content_filter_offsets":{"check_offset":1},"content_filter_results":{},'
        + b'"finish_reason":null,"index":0}]}\n\n'
        + LO
        + STOP
        + DONE,
        text="hello",
    ),
    "an empty first chunk": Form(body=b'data: {"choices":[],"prompt_filter_results":[]}\n\n' + HELLO, text="hello"),
    "role in every chunk": Form(
        body=HEL + LO.replace(b'"delta":{', b'"delta":{"role":"assistant",') + STOP, text="hello"
    ),
    "no role": Form(body=(HEL + LO + STOP).replace(b'"role":"assistant",', b""), text="hello"),
    "content null": Form(body=_delta(b'{"role":"assistant","content":null}') + HELLO, text="hello"),
    "content in parts": Form(
        body=_delta(b'{"content":[{"type":"text","text":"hello"},{"type":"x"}]}') + STOP, text="hello"
    ),
    "delta null": Form(body=HEL + LO + _delta(b"null", b'"stop"'), text="hello"),
    "text in the last chunk": Form(body=HEL + LO.replace(b"null", b'"stop"'), text="hello"),
    "message for delta": Form(body=(HEL + LO + STOP).replace(b'"delta"', b'"message"'), text="hello"),
    "an error that is null": Form(body=HELLO.replace(b'{"choices"', b'{"error":null,"choices"'), text="hello"),
    "events after the end": Form(body=HELLO + DONE + HEL, text="hello"),
    "finish_reason for end": Form(body=HEL + LO + STOP.replace(b"stop", b"STOP"), text="hello"),
    "finish_reason in every chunk": Form(body=HELLO.replace(b"null", b'"stop"'), text="hello"),
    "finish_reason as the word null": Form(body=HELLO.replace(b"null", b'"null"'), text="hello"),
    "finish_reason unknown": Form(body=HELLO.replace(b"stop", b"odd"), text="hello", finish="odd"),
    "finish_reason of a tokenizer": Form(body=HELLO.replace(b"stop", b"eos_token"), text="hello"),
    "max_tokens for length": Form(body=HELLO.replace(b"stop", b"max_tokens"), text="hello", finish="length"),
    "reasoning_content": Form(
        body=_delta(b'{"reasoning_content":"hm "}') + _delta(b'{"reasoning_content":"so"}') + HELLO,
        text="hello",
        reasoning="hm so",
    ),
    "reasoning": Form(body=_delta(b'{"reasoning":"hm","content":""}') + HELLO, text="hello", reasoning="hm"),
    "reasoning under both names": Form(
        body=_delta(b'{"reasoning":"hm","reasoning_content":"hm"}') + HELLO, text="hello", reasoning="hm"
    ),
    "reasoning alone": Form(body=_delta(b'{"content":null,"reasoning_content":"42"}') + STOP, reasoning="42"),
    "thoughts as a part, of Mistral": Form(
        body=_delta(b'{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}') + HELLO,
        text="hello",
        reasoning="hm",
    ),
    "thoughts in details alone": Form(
        body=_delta(b'{"content":"","reasoning_details":[{"type":"reasoning.text","text":"hm","index":0}]}') + HELLO,
        text="hello",
        reasoning="hm",
    ),
    "think block": Form(body=HELLO.replace(b"hel", b"<think>hm</think>\\n\\nhel"), text="hello", reasoning="hm"),
    "think block, split": Form(
        body=_delta(b'{"content":"<thi"}') + _delta(b'{"content":"nk>h"}') + _delta(b'{"content":"m</think>"}') + HELLO,
        text="hello",
        reasoning="hm",
    ),
    "think block begun by the prompt": Form(
        body=_delta(b'{"content":"hm\\n</thi"}') + _delta(b'{"content":"nk>\\n\\n"}') + HELLO,
        text="hello",
        reasoning="hm\n",
        heard="hm\n</think>\n\nhello",
    ),
    "an answer that speaks of the end of a block": Form(
        body=HELLO.replace(b"hel", b"write </think>\\nhel"), text="write </think>\nhello"
    ),
    "think block without end": Form(body=HELLO.replace(b"hel", b"<think>hel"), reasoning="hello"),
    "plain": Form(
        body=_message(
            b'{"role":"assistant","content":"hello"}', more=b',"usage":{"prompt_tokens":9,"completion_tokens":2}'
        ),
        text="hello",
        usage=(9, 2, 0, 0),
    ),
    "plain, pretty, with a mark": Form(
        body=BOM + b" \n" + _message(b'{"content": "hello"}').replace(b",", b",\r\n  "), text="hello"
    ),
    "plain, content in parts": Form(
        body=_message(b'{"content":[{"type":"text","text":"hel"},{"type":"text","text":"lo"}]}'), text="hello"
    ),
    "plain, content absent, reasoning": Form(body=_message(b'{"reasoning":"42"}'), reasoning="42"),
    "plain, think block": Form(body=_message(b'{"content":"<think>hm</think>hello"}'), text="hello", reasoning="hm"),
    "plain, think block begun by the prompt": Form(
        body=_message(b'{"content":"hm\\n</think>\\n\\nhello"}'),
        text="hello",
        reasoning="hm\n",
        heard="hm\n</think>\n\nhello",
    ),
    "plain, thoughts as a part": Form(
        body=_message(b'{"content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"hello"}]}'),
        text="hello",
        reasoning="hm",
    ),
    "plain, after empty lines": Form(body=b"\n\n\n" + _message(b'{"content":"hello"}'), text="hello"),
    "plain, no finish_reason": Form(body=_message(b'{"content":"hello"}', b"null"), text="hello", finish=""),
    "plain, refusal null": Form(body=_message(b'{"content":"hello","refusal":null}'), text="hello"),
}

CALLS: dict[str, Form] = {
    "a call as documented": Form(
        body=_call(A)
        + _call(b'{"index":0,"function":{"arguments":"{\\"at\\""}}')
        + _call(b'{"index":0,"function":{"arguments":": 1}"}}')
        + CALLED,
        calls=ONE,
        finish="tool_calls",
    ),
    "text and a call": Form(
        body=_delta(b'{"content":"see "}') + _call(A) + CALLED,
        text="see ",
        calls=(("a", "look", ""),),
        finish="tool_calls",
    ),
    "two calls, interleaved": Form(
        body=_call(A)
        + _call(B)
        + _call(b'{"index":1,"function":{"arguments":"{\\"n\\""}}')
        + _call(b'{"index":0,"function":{"arguments":"{"}}')
        + _call(b'{"index":1,"function":{"arguments":": 2}"}},{"index":0,"function":{"arguments":"}"}}')
        + CALLED,
        calls=TWO,
        finish="tool_calls",
    ),
    "two calls in one chunk, whole": Form(
        body=_call(A.replace(b'""', b'"{}"') + b"," + B.replace(b'""', b'"{\\"n\\": 2}"')) + CALLED,
        calls=TWO,
        finish="tool_calls",
    ),
    "every index 0": Form(
        body=_call(A)
        + _call(b'{"index":0,"id":"a","function":{"arguments":"{}"}}')
        + _call(B.replace(b'"index":1', b'"index":0'))
        + _call(b'{"index":0,"function":{"arguments":"{\\"n\\": 2}"}}')
        + CALLED,
        calls=TWO,
        finish="tool_calls",
    ),
    "a fragment under a strange index": Form(
        body=_call(A) + _call(b'{"index":1,"function":{"arguments":"{\\"at\\": 1}"}}') + CALLED,
        calls=ONE,
        finish="tool_calls",
    ),
    "no index": Form(
        body=_call(A.replace(b'"index":0,', b""))
        + _call(b'{"function":{"arguments":"{}"}}')
        + _call(B.replace(b'"index":1,', b""))
        + _call(b'{"function":{"arguments":"{\\"n\\": 2}"}}')
        + CALLED,
        calls=TWO,
        finish="tool_calls",
    ),
    "no id": Form(
        body=_call(A.replace(b'"id":"a",', b"").replace(b'""', b'"{\\"at\\": 1}"')) + CALLED,
        calls=(("", "look", '{"at": 1}'),),
        finish="tool_calls",
    ),
    "one id for two calls": Form(
        body=_call(A.replace(b'""', b'"{}"')) + _call(B.replace(b'"b"', b'"a"').replace(b'""', b'"{}"')) + CALLED,
        calls=(("a", "look", "{}"), ("a", "find", "{}")),
        finish="tool_calls",
    ),
    "id and name in every piece": Form(
        body=_call(A) + _call(A.replace(b'""', b'"{\\"at\\""')) + _call(A.replace(b'""', b'": 1}"')) + CALLED,
        calls=ONE,
        finish="tool_calls",
    ),
    "another id in every piece, of Poolside": Form(
        body=_call(A)
        + _call(b'{"index":0,"id":"x","function":{"arguments":"{}"}}')
        + _call(B.replace(b'"index":1', b'"index":0'))
        + _call(b'{"index":0,"id":"y","function":{"arguments":"{\\"n\\": 2}"}}')
        + CALLED,
        calls=TWO,
        finish="tool_calls",
    ),
    "every index 0 and every id empty, of Gemini": Form(
        body=b"".join(
            _call(b'{"index":0,"id":"","function":{"name":"look","arguments":"{\\"at\\": %d}"}}' % at) for at in (1, 2)
        )
        + CALLED,
        calls=(("", "look", '{"at": 1}'), ("", "look", '{"at": 2}')),
        finish="tool_calls",
    ),
    "name in every piece, no id": Form(
        body=_call(b'{"index":0,"function":{"name":"look","arguments":"{\\"at\\""}}')
        + _call(b'{"index":0,"function":{"name":"look","arguments":": 1}"}}')
        + CALLED,
        calls=(("", "look", '{"at": 1}'),),
        finish="tool_calls",
    ),
    "thoughts that have to go back": Form(
        body=_delta(b'{"reasoning_content":"hm"}') + _call(A.replace(b'""', b'"{\\"at\\": 1}"')) + CALLED,
        calls=ONE,
        finish="tool_calls",
        reasoning="hm",
        thoughts=1,
    ),
    "a signature at a call, of Gemini": Form(
        body=_call(
            A.replace(b'""', b'"{\\"at\\": 1}"').replace(
                b'"index":0', b'"index":0,"extra_content":{"google":{"thought_signature":"c2ln"}}'
            )
        )
        + CALLED,
        calls=ONE,
        finish="tool_calls",
        thoughts=1,
    ),
    "the name in pieces": Form(
        body=_call(A.replace(b'"look"', b'"lo"'))
        + _call(b'{"index":0,"function":{"name":"ok","arguments":"{\\"at\\": 1}"}}')
        + CALLED,
        calls=ONE,
        finish="tool_calls",
    ),
    "arguments as an object": Form(
        body=_call(A.replace(b'""', b'{"at":1}')) + CALLED, calls=(("a", "look", '{"at":1}'),), finish="tool_calls"
    ),
    "arguments null": Form(
        body=_call(A.replace(b'""', b"null")) + CALLED, calls=(("a", "look", ""),), finish="tool_calls"
    ),
    "finish_reason stop": Form(
        body=_call(A) + _call(b'{"index":0,"function":{"arguments":"{\\"at\\": 1}"}}') + STOP + DONE,
        calls=ONE,
        finish="stop",
    ),
    "no finish_reason and no counts": Form(
        body=_call(A) + _call(b'{"index":0,"function":{"arguments":"{\\"at\\": 1}"}}') + DONE, calls=ONE, finish=""
    ),
    "plain, two calls": Form(
        body=_message(
            b'{"content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"look","arguments":"{}"}},'
            b'{"id":"b","type":"function","function":{"name":"find","arguments":"{\\"n\\": 2}"}}]}',
            b'"tool_calls"',
        ),
        calls=TWO,
        finish="tool_calls",
    ),
    "plain, no ids, an object, nonsense": Form(
        body=_message(
            b'{"tool_calls":[{"function":{"name":"look","arguments":{"at":1}}},"nonsense",{"function":5},'
            b'{"function":{"name":"find"}}]}',
            b'"stop"',
        ),
        calls=(("", "look", '{"at":1}'), ("", "find", "")),
    ),
}
