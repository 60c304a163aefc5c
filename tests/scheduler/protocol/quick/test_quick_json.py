"""The C scanner reads what `json` reads; what is wrong is `json`'s to say."""

import json

import pytest

from convgpu.protocol.quick import quick_json


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "true",
        "-0",
        "12345678901234567890",
        "1.5e-3",
        '""',
        r'"\u00e9\ud83d\ude00\ud800\"\\"',
        '"\u00e9\U0001f600"',
        "[]",
        "{}",
        '{"a": [1, {"b": null, "a": ""}], "": false}',
        '{"a": 1, "a": 2}',
        "[Infinity, -Infinity]",
        "\ufeff[1]",
    ],
)
@pytest.mark.parametrize("space", ["", " ", "\r\n\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_documents_are_read_as_json_reads_them(text: str, space: str, encoding: str) -> None:
    content = (text + space if text[0] == "\ufeff" else space + text + space).encode(encoding)
    try:
        expected = json.loads(content)
    except ValueError as error:  # json's own limits, as a second mark
        with pytest.raises(type(error)):
            quick_json.loads(content)
        return
    assert quick_json.loads(content) == expected


@pytest.mark.parametrize("content", [b"", b" ", b"{", b"[1] x", b'{"a": 1} {}', b"nul", b"\xff", b'"a\nb"', b"[1,]"])
def test_the_error_is_that_of_json(content: bytes) -> None:
    with pytest.raises(ValueError) as expected:  # noqa: PT011 - compared below
        json.loads(content)
    with pytest.raises(type(expected.value)) as caught:
        quick_json.loads(content)
    assert str(caught.value) == str(expected.value)


@pytest.mark.parametrize("value", [{"a": 'x\n"é\\', "b": {"c": -7}}, {}])
def test_what_is_written_is_read_by_json(value: dict[str, object]) -> None:
    assert json.loads(quick_json.dumps(value)) == value
