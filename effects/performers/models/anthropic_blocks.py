"""The content blocks of the Messages dialect: parts of messages, results and tools as JSON."""

from __future__ import annotations

import base64
import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .encoding import is_object, kind_of, named, to_json, tool_name

if TYPE_CHECKING:
    from ...config import ToolSpec
    from ...messages import Binary, Reasoning, ToolCall, ToolResult

MARK = b',"cache_control":{"type":"ephemeral"}'
"""What stands before the closing brace of a block up to which the provider shall cache."""

IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
"""The pictures that the API takes."""

NO_SCHEMA = b'{"type":"object"}'


def marked(block: bytes) -> bytes:
    """*block* with the mark up to which the provider shall cache."""
    return block[:-1] + MARK + b"}"


def text_block(text: str) -> bytes:
    """*text*, which the API refuses where it is nothing but white space."""
    return to_json(_text(text))


def thought_block(thought: Reasoning) -> bytes:
    """A signed or redacted *thought*, as it came."""
    if thought.redacted:
        return to_json({"type": "redacted_thinking", "data": thought.redacted})
    return to_json({"type": "thinking", "thinking": thought.text, "signature": thought.signature})


def call_block(call: ToolCall, wire_id: str) -> bytes:
    """*call* with its arguments as the model wrote them, or none where they are no object."""
    arguments = call.arguments.encode() if is_object(call.arguments) else b"{}"
    parts = to_json(wire_id), to_json(tool_name(call.name)), arguments
    return b'{"type":"tool_use","id":%b,"name":%b,"input":%b}' % parts


def result_block(result: ToolResult, wire_id: str) -> bytes:
    """*result* with its files; those of an error are named only, since the API takes text alone there."""
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": wire_id}
    content = [_text(result.content)] if result.content.strip() else []
    if result.is_error:
        content += [_text(named(file)) for file in result.files]
        return to_json(block | {"is_error": True, "content": content or [_text(result.outcome)]})
    content += [_attached(file) for file in result.files]
    return to_json(block | {"content": content} if content else block)


def attached_block(part: Binary) -> bytes:
    """*part* as a picture or a document, or named in text where the API takes neither."""
    return to_json(_attached(part))


@lru_cache(maxsize=1024)
def tool_block(tool: ToolSpec) -> bytes:
    """What a model is told of *tool*."""
    schema = tool.schema.encode("utf-8", "replace")
    if "type" not in (properties := json.loads(tool.schema)):
        schema = to_json({"type": "object"} | properties)  # elsewhere it may be left out
    described = b'"description":%b,' % to_json(tool.description) if tool.description else b""
    return b'{"name":%b,%b"input_schema":%b}' % (to_json(tool.name), described, schema)


def bare_tool_block(name: str) -> bytes:
    """A tool of which nothing is known but its *name*."""
    return b'{"name":%b,"input_schema":%b}' % (to_json(name), NO_SCHEMA)


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _attached(part: Binary) -> dict[str, Any]:
    kind = kind_of(part)
    if part.data and kind in IMAGES:
        return {"type": "image", "source": _base64(kind, part)}
    title = {"title": part.name} if part.name else {}
    if part.data and kind == "application/pdf":
        return {"type": "document", "source": _base64(kind, part)} | title
    if kind.startswith("text/") and (text := part.data.decode("utf-8", "replace")).strip():
        source = {"type": "text", "media_type": "text/plain", "data": text}
        return {"type": "document", "source": source} | title
    return _text(named(part))


def _base64(kind: str, part: Binary) -> dict[str, str]:
    return {"type": "base64", "media_type": kind, "data": base64.b64encode(part.data).decode()}
