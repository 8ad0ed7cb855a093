"""
The words of telemetry: names of the GenAI semantic conventions v0.1.0, and conversations in their JSON.

The strings stand here, since the constants of ``opentelemetry-semantic-conventions`` are of an older version.
What the conventions have no name for begins with ``turnwheel``.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import assert_never

from ...effects import (
    Binary,
    Citation,
    Finish,
    Message,
    Part,
    ProviderCall,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)

# The name of the instrumentation.
SCOPE = "turnwheel"

OPERATION = "gen_ai.operation.name"
INVOKE_AGENT = "invoke_agent"
ASK_MODEL = "chat"
EXECUTE_TOOL = "execute_tool"

PROVIDER = "gen_ai.provider.name"
AGENT_NAME = "gen_ai.agent.name"
CONVERSATION = "gen_ai.conversation.id"
COMPACTED = "gen_ai.conversation.compacted"
OUTPUT_TYPE = "gen_ai.output.type"

REQUEST_MODEL = "gen_ai.request.model"
REQUEST_STREAM = "gen_ai.request.stream"
MAX_TOKENS = "gen_ai.request.max_tokens"
TEMPERATURE = "gen_ai.request.temperature"
TOP_P = "gen_ai.request.top_p"
SEED = "gen_ai.request.seed"

RESPONSE_ID = "gen_ai.response.id"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"

INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_write.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"

TOKEN_KINDS = (INPUT_TOKENS, OUTPUT_TOKENS, CACHE_READ_TOKENS, CACHE_WRITE_TOKENS, REASONING_TOKENS)

CALLED_TOOL = "gen_ai.tool.name"
TOOL_CALL = "gen_ai.tool.call.id"
TOOL_TYPE = "gen_ai.tool.type"
ERROR_TYPE = "error.type"

# Set where the caller asked for content, and never else.
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"

RUN = "turnwheel.run.id"
REASON = "turnwheel.run.reason"
RESTING = "turnwheel.resting"
PURPOSE = "turnwheel.purpose"
ATTEMPT = "turnwheel.attempt"
THINKING_TOKENS = "turnwheel.request.thinking_tokens"
COST = "turnwheel.cost.usd"
REQUEST = "turnwheel.request.id"
DECISION = "turnwheel.approval.decision"

# The metrics, each with its unit.
CHAT_DURATION = ("gen_ai.client.inference.duration", "s")
CHAT_FIRST_CHUNK = ("gen_ai.client.inference.time_to_first_chunk", "s")
CHAT_INPUT = ("gen_ai.client.inference.operation.input_tokens", "{token}")
CHAT_OUTPUT = ("gen_ai.client.inference.operation.output_tokens", "{token}")
USED_TOKENS = "gen_ai.client.inference.usage"
AGENT_DURATION = ("gen_ai.invoke_agent.duration", "s")
AGENT_CHATS = ("gen_ai.invoke_agent.inference_calls", "{inference_call}")
AGENT_TOOLS = ("gen_ai.invoke_agent.tool_calls", "{tool_call}")
TOOL_DURATION = ("gen_ai.execute_tool.duration", "s")

# Providers whose name in the conventions is not what the name of a model begins with.
_PROVIDERS: Mapping[str, str] = {
    "openai-responses": "openai",
    "azure": "azure.ai.openai",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "xai": "x_ai",
}


def provider_name(prefix: str) -> str:
    """The provider of models whose names begin with *prefix*, as the conventions have it."""
    return _PROVIDERS.get(prefix, prefix)


def tokens(usage: Usage) -> dict[str, int]:
    """*usage* as attributes; those that are zero are left out, but for input and output."""
    parts = {
        CACHE_READ_TOKENS: usage.cached,
        CACHE_WRITE_TOKENS: usage.cache_write,
        REASONING_TOKENS: usage.reasoning,
    }
    used = {name: count for name, count in parts.items() if count}
    return {INPUT_TOKENS: usage.input, OUTPUT_TOKENS: usage.output, **used}


def instructions_json(*texts: str) -> str:
    """System instructions, as the conventions have them."""
    return _json([{"type": "text", "content": text} for text in texts if text])


def messages_json(messages: Iterable[Message], finish: str = "") -> str:
    """*messages* as the conventions have them; an answer has its *finish* reason."""
    plain = [
        {"role": str(message.role), "parts": [_part(part) for part in message.parts if not _ends(part)]}
        | ({"finish_reason": finish} if finish else {})
        for message in messages
    ]
    return _json(plain)


def _ends(part: Part) -> bool:
    return isinstance(part, Finish)


def _part(part: Part) -> dict[str, object]:  # noqa: PLR0911  # one return for each kind
    match part:
        case Text():
            return {"type": "text", "content": part.text}
        case Reasoning():
            return {"type": "reasoning", "content": part.text}
        case ToolCall():
            return {"type": "tool_call", "id": part.id, "name": part.name, "arguments": part.arguments}
        case ToolResult():
            return {"type": "tool_call_response", "id": part.call, "response": part.content}
        case Binary():
            content = b64encode(part.data).decode("ascii")
            return {"type": "blob", "mime_type": part.media_type, "content": content}
        case ProviderCall():
            call = {"type": part.name, "arguments": part.arguments, "response": part.result}
            return {"type": "server_tool_call", "id": part.id, "name": part.name, "server_tool_call": call}
        case Citation():
            return {"type": "citation", "url": part.url, "title": part.title}
        case Finish():
            return {"type": "finish", "content": str(part.reason)}
        case _:
            assert_never(part)


def _json(plain: object) -> str:
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
