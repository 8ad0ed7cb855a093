"""Complete what is typed in a chat: commands, their arguments, and paths after ``@``."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol, final

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from ..terminal.sanitize import one_line, whole_name
from .attachments import attached_word
from .commands import COMMAND_HELP

MOST_ENTRIES = 200
"""The most entries of a folder that are offered."""

META_WIDTH = 50
"""Columns of the explanation behind a completion."""

OfferedText = tuple[str, str]
"""A text that is offered, and its explanation."""


class ChatChoices(Protocol):
    """The arguments of commands that depend on the session."""

    def models(self) -> Iterable[OfferedText]:
        """The models that the session may switch to."""
        ...

    def modes(self) -> Iterable[OfferedText]:
        """The permission modes."""
        ...

    def calls(self) -> Iterable[OfferedText]:
        """The latest calls, by their numbers."""
        ...

    def open_calls(self) -> Iterable[OfferedText]:
        """The calls that have no result yet, by their numbers."""
        ...

    def waiting(self) -> Iterable[OfferedText]:
        """Actions on the prompts that wait, by their numbers."""
        ...

    async def sessions(self) -> Iterable[OfferedText]:
        """The sessions of this directory."""
        ...


@final
class ChatCompleter(Completer):
    """Completes from `choices`, those of the session at hand; relative paths begin in *cwd*."""

    def __init__(self, choices: ChatChoices, cwd: Path) -> None:
        self.choices = choices
        self._cwd = cwd

    def _arguments(self, command: str) -> Iterable[OfferedText]:
        """What can stand behind *command*."""
        choices = self.choices
        by_command: dict[str, Callable[[], Iterable[OfferedText]]] = {
            "/cancel": choices.open_calls,
            "/mode": choices.modes,
            "/model": choices.models,
            "/queue": choices.waiting,
            "/show": choices.calls,
            "/think": lambda: [("off", "the provider's default")],
            "/why": choices.calls,
        }
        return by_command[command]() if command in by_command else ()

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """The completions that need no look at the store."""
        del complete_event
        before = document.text_before_cursor
        if (word := attached_word(before)) is not None:
            return self._paths(word)
        command, blank, argument = before.partition(" ")
        if not command.startswith("/"):
            return []
        if not blank:
            return _fitting(COMMAND_HELP, command)
        return _fitting(self._arguments(command), argument)

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """All completions."""
        command, blank, argument = document.text_before_cursor.partition(" ")
        if command == "/sessions" and blank:
            for completion in _fitting(await self.choices.sessions(), argument):
                yield completion
        else:
            for completion in self.get_completions(document, complete_event):
                yield completion

    def _paths(self, word: str) -> Iterator[Completion]:
        """The paths that begin with *word*, which may have a quote before it."""
        typed = word.removeprefix('"')
        folder, _, beginning = typed.rpartition("/")
        above = f"{folder}/" if "/" in typed else ""
        try:
            with os.scandir(self._cwd / Path(above).expanduser()) as found:
                entries = sorted((entry.name, entry.is_dir()) for entry in found)
        except (OSError, RuntimeError):  # no folder, or no home of that name
            return
        fitting = [
            (name, is_folder)
            for name, is_folder in entries
            if name.startswith(beginning) and (beginning or not name.startswith("."))
        ]
        for name, is_folder in fitting[:MOST_ENTRIES]:
            path = f"{above}{name}{'/' if is_folder else ''}"
            quoted = word.startswith('"') or " " in path
            text = f'"{path}{"" if is_folder else chr(34)}' if quoted else path
            if whole_name(text) == text:
                yield Completion(text, start_position=-len(word), display=name + "/" * is_folder)


def _fitting(choices: Iterable[OfferedText], beginning: str) -> Iterator[Completion]:
    for text, about in choices:
        if text.startswith(beginning):
            yield Completion(text, start_position=-len(beginning), display_meta=one_line(about, META_WIDTH))
