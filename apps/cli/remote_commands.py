"""The commands that speak to a session from another terminal, whether a process runs it or not."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import click

from ...effects.config import Steering
from ...effects.events import (
    Approve,
    ApproveAlways,
    Decision,
    Deny,
)
from ...effects.permissions import ArgumentGlobs, PermissionMode
from ...effects.records import (
    Change,
    SetMode,
    SetModel,
    SetThinking,
)
from ...effects.requests import AskApproval
from ...engine.inspect.explain import Explanation
from ...performers.stores.place import StorePlace
from ..terminal.approval_card import Question, card
from ..terminal.sanitize import clean
from ..terminal.screen import Screen
from .call_report import report_lines
from .option_types import thinking, where
from .options import (
    FILES,
    MODE,
    attached,
    read,
    text_of,
)
from .remote_session import RemoteSession, open_remote
from .stores import SessionName, store

SESSION = click.argument("session", type=SessionName(), metavar="ID")
CALL = click.argument("call", metavar="CALL")
TEXT = click.argument("text", metavar="TEXT")


def _do(place: StorePlace, session: str, act: Callable[[RemoteSession], Awaitable[str | list[str]]]) -> None:
    """Do *act* to *session* and print the outcome."""

    async def reach() -> str | list[str]:
        async with open_remote(place, session) as there:
            return await act(there)

    outcome = asyncio.run(reach())
    for line in [outcome] if isinstance(outcome, str) else outcome:
        click.echo(clean(line))


@click.command()
@SESSION
@CALL
@click.option("--edit", metavar="JSON", help="Run it with these arguments.")
@click.option("--always", is_flag=True, help="Do not ask about this tool again in this session.")
@click.option(
    "--where", metavar="ARGUMENT=GLOB", callback=read(where), help="With --always: only calls that match."
)
@store
def approve(
    store: StorePlace,
    session: str,
    call: str,
    *,
    edit: str | None,
    always: bool,
    where: ArgumentGlobs | None,
) -> None:
    """
    Approve the open question about CALL of session ID; CALL may be all.

    The worker takes up the answer; a run that rests takes it up when you resume it.
    """
    if edit is not None and always:
        msg = "--always does not cover edited arguments; leave out --edit"
        raise click.UsageError(msg)
    if where is not None and not always:
        msg = "--where limits --always; give both"
        raise click.UsageError(msg)
    decision: Decision = ApproveAlways(where=where or ()) if always else Approve(arguments=edit or "")
    _do(store, session, lambda there: there.decide(call, decision))


@click.command()
@SESSION
@CALL
@click.option("--message", "-m", metavar="TEXT", default="", help="The reason; the model reads it.")
@click.option("--stop", is_flag=True, help="Also stop the run.")
@store
def deny(store: StorePlace, session: str, call: str, message: str, *, stop: bool) -> None:
    """Deny the open question about CALL of session ID; CALL may be all."""
    _do(store, session, lambda there: there.decide(call, Deny(message=message, interrupt=stop)))


@click.command()
@SESSION
@TEXT
@FILES
@store
def send(store: StorePlace, session: str, text: str, files: tuple[Path, ...]) -> None:
    """Queue TEXT (- reads it from stdin) as a prompt of session ID."""
    _do(store, session, lambda there: there.send(text_of(text), attached(files)))


@click.command()
@SESSION
@click.argument("input", metavar="[INPUT]", default="")
@store
def withdraw(store: StorePlace, session: str, input: str) -> None:  # noqa: A002  # the word of the event
    """
    Take back INPUT of session ID, a prompt that waits or a steer that was not read.

    INPUT is an id, or the number of a prompt in the queue. Without INPUT, show the prompts that wait.
    """
    _do(store, session, lambda there: there.withdraw(input) if input else there.queue())


@click.command()
@SESSION
@TEXT
@FILES
@click.option("--now", "how", flag_value="now", help="Cancel running calls and skip the rest.")
@click.option(
    "--after-tool",
    "how",
    flag_value="after_tool",
    default=True,
    help="Skip the rest. [default]",
)
@click.option("--when-done", "how", flag_value="when_done", help="Let all calls of the batch run.")
@store
def steer(store: StorePlace, session: str, text: str, files: tuple[Path, ...], how: str) -> None:
    """Steer the unfinished run of session ID with TEXT (- reads it from stdin)."""
    _do(store, session, lambda there: there.steer(text_of(text), Steering(how), attached(files)))


@click.command()
@SESSION
@click.option("--model", metavar="NAME", help="Use this model from the next call on.")
@click.option("--mode", type=MODE, help="Permission mode.")
@click.option("--think", metavar="N", help="Thinking tokens; off for the provider's default.")
@store
def control(store: StorePlace, session: str, model: str | None, mode: str | None, think: str | None) -> None:
    """Change settings of session ID and of its unfinished run."""
    changes: list[Change] = []
    if model is not None:
        changes.append(SetModel(model=model))
    if mode is not None:
        changes.append(SetMode(mode=PermissionMode(mode)))
    if think is not None:
        try:
            changes.append(SetThinking(tokens=thinking(think)))
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--think") from error
    if not changes:
        msg = "nothing to change; give --model, --mode or --think"
        raise click.UsageError(msg)

    async def act(there: RemoteSession) -> list[str]:
        return [await there.control(change) for change in changes]

    _do(store, session, act)


@click.command()
@SESSION
@CALL
@store
def cancel(store: StorePlace, session: str, call: str) -> None:
    """Cancel one CALL of session ID; the run goes on."""
    _do(store, session, lambda there: there.cancel(call))


@click.command()
@SESSION
@store
def interrupt(store: StorePlace, session: str) -> None:
    """Stop the run of session ID; the text so far is kept."""
    _do(store, session, RemoteSession.interrupt)


@click.command()
@SESSION
@store
@click.option("--whole", is_flag=True, help="Cut no long text.")
@click.option("--json", "json_lines", is_flag=True, help="Each question as a line of JSON.")
def questions(store: StorePlace, session: str, *, whole: bool, json_lines: bool) -> None:
    """Show the open questions of session ID and its children, with their reasons."""

    async def asked() -> tuple[tuple[AskApproval, ...], str]:
        async with open_remote(store, session) as there:
            return there.session.waiting, there.config.cwd

    found, cwd = asyncio.run(asked())
    screen = Screen(sys.stdout)
    for question in found:
        if json_lines:
            click.echo(json.dumps(attrs.asdict(question)))
        else:
            about = Question.of(question, agent=question.agent)
            # In the directory of the session, which may be another one than this, or on another machine.
            folder = Path(cwd) if cwd and Path(cwd).is_dir() else None
            more = "--whole shows all"
            screen.lines(*card(about, folder, screen.width, always_why=True, whole=whole, more=more))
    if not found and not json_lines:
        screen.line("no question is open")


@click.command()
@SESSION
@CALL
@store
@click.option("--json", "json_lines", is_flag=True, help="As one line of JSON.")
def why(store: StorePlace, session: str, call: str, *, json_lines: bool) -> None:
    """Explain CALL of session ID: its verdict, its answer and its outcome."""

    async def ask() -> Explanation:
        async with open_remote(store, session) as there:
            return await there.why(call)

    found = asyncio.run(ask())
    if json_lines:
        click.echo(json.dumps(attrs.asdict(found)))
    else:
        for line in report_lines(found):
            click.echo(line)
