"""Estimating tokens where no model has counted them."""

# Four characters a token and four tokens a message are the usual rule of thumb; tool calls and results
# count with all their text, since they are most of a long conversation. A model's own count replaces the
# estimate whenever there is one.

from __future__ import annotations

from collections.abc import Iterable

from ...effects.history import CallPiece, History, Piece, clear_results
from ...effects.messages import (
    Binary,
    Citation,
    Finish,
    Message,
    Part,
    ProviderCall,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from ...effects.usage import Usage

CHARACTERS_PER_TOKEN = 4
TOKENS_PER_MESSAGE = 4
# An image costs between a few hundred and about 1,600 tokens with today's providers.
TOKENS_PER_BINARY = 1_000


def _characters(part: Part) -> int:
    match part:
        case Text() | Reasoning():
            return len(part.text)
        case ToolCall():
            return len(part.name) + len(part.arguments)
        case ToolResult():
            return len(part.content) + len(part.files) * TOKENS_PER_BINARY * CHARACTERS_PER_TOKEN
        case Binary():
            return TOKENS_PER_BINARY * CHARACTERS_PER_TOKEN
        case ProviderCall():
            # A provider counts what it found as input of the answer, so its own count has it.
            return len(part.arguments) + len(part.result)
        case Citation() | Finish():
            return 0


def message_size(message: Message) -> int:
    """The estimated tokens of *message*."""
    # Rough on purpose. A tokenizer is exact for one model, slow for all, and replaced by the model's own
    # count after each answer.
    return TOKENS_PER_MESSAGE + sum([_characters(part) for part in message.parts]) // CHARACTERS_PER_TOKEN


def history_size(messages: Iterable[Message]) -> int:
    """The estimated tokens of *messages*."""
    return sum([message_size(message) for message in messages])


def results_in(messages: Iterable[Message]) -> int:
    """How many tool results *messages* hold."""
    return sum([len(message.parts) for message in messages if message.role is Role.TOOL])


def saved(history: History, start: int, stop: int) -> int:
    """The estimated tokens that are not shown of the messages from index *start* up to *stop*, being old."""
    return sum(
        [
            message_size(message) - message_size(clear_results(message))
            for message in history.slice(start, stop)
            if message.role is Role.TOOL
        ]
    )


def usage_of(told: Usage | None, context: int, pieces: Iterable[Piece], *, begun: bool) -> Usage:
    """
    What an answer used: what it *told*, or an estimate where it had *begun*; what was refused used nothing.
    """
    # Zeros tell nothing. *context* tokens went in, *pieces* came out.
    # Some servers send a usage of zeros while they stream, and others forget it.
    if told is not None and told.total:
        return told
    return estimated_usage(context, pieces) if begun else Usage()


def _written(piece: Piece) -> int:
    match piece:
        case CallPiece() | ProviderCall():
            return len(piece.arguments)
        case Citation():
            return 0
        case _:
            return len(piece.text)


def estimated_usage(context: int, pieces: Iterable[Piece]) -> Usage:
    """What an answer that told no usage must have used: *context* tokens in, its *pieces* out."""
    characters = sum(map(_written, pieces))
    # Rounded up: an answer of three letters was not free.
    output = -(-characters // CHARACTERS_PER_TOKEN)
    return Usage(input=context, output=output, estimated=context + output)
