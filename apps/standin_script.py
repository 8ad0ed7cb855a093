"""
The script of the stand-in: a pure function from a conversation to the next step of it.

Theory of operation. Nothing is remembered between requests. The prompt is the last thing the user said, what
was done since are the calls after it with their results, and the next step follows from these two. A survey
has three stages of calls (look, read, write) and an answer; the stage after the last one that was begun is
next, so whatever tools return, a survey ends. Only tools that are offered are called.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast, final

import attrs

from .standin_report import DEFINITIONS, SUMMARY_TASK, Result, Survey, about_file, returned, summary
from .standin_wire import Call, Message, Offer, OfferedFunction, Step

MODEL = "stand-in"
SLOW_MODEL = "stand-in-slow"
BASH_MODEL = "stand-in-bash"
MODELS = (MODEL, SLOW_MODEL, BASH_MODEL)

REPORT = "REPORT.md"
"""Where the report goes unless the prompt names a file for it."""

_FILE = r"(?!e\.g\b|i\.e\b)[\w./-]*\w\.[A-Za-z]\w{0,9}\b"
_NAMED_FILE = re.compile(rf"(?<![\w./-]){_FILE}")
_TARGET = re.compile(rf"\b(?:to|into|as)\s+[`'\"]?({_FILE})[`'\"]?", re.IGNORECASE)
_TERM = re.compile(r"[\"“`]([^\"“”`\n]{2,80})[\"”`]")
_ORDER = re.compile(r"\b(?:write|report|save|survey)\b", re.IGNORECASE)
_COMMAND = re.compile(r"\brun:[ \t]*(\S.*)", re.IGNORECASE)
_SMALL_TALK = re.compile(
    r"\W*(?:hello|hi|hey|good (?:morning|evening|day)|thanks|thank you|ok|okay|help|who are you"
    r"|what can you do)(?: there| again| very much)?\W*",
    re.IGNORECASE,
)

Wish = tuple[str, Mapping[str, str]]
"""A call as the script writes it: the tool's name and its arguments."""


@final
@attrs.frozen(kw_only=True)
class _Talk:
    """A conversation as the script sees it; *made* counts the calls in all of it, for the ids of new ones."""

    prompt: str
    results: tuple[Result, ...]
    made: int
    offers: Mapping[str, OfferedFunction]

    def step(self, text: str, wishes: Sequence[Wish]) -> Step:
        """The step that says *text* and makes those of *wishes* whose tool is offered."""
        offered = [wish for wish in wishes if wish[0] in self.offers]
        calls = tuple(
            Call(id=f"call_{number}", name=name, arguments=json.dumps(arguments, ensure_ascii=False))
            for number, (name, arguments) in enumerate(offered, self.made)
        )
        return Step(text=text, calls=calls)


def decide(messages: Sequence[Message], tools: Sequence[Offer] = (), *, model: str = MODEL) -> Step:
    """
    The next step of the conversation *messages*, with *tools* on offer.

    A transcript to be summarised gets its summary, a question that names a file an answer from that file, and
    any other prompt a survey of the folder with a report. *model* `BASH_MODEL` runs the command that follows
    ``run:`` in the prompt instead.
    """
    if not tools and _wants_summary(messages):
        return Step(text=summary(messages[-1].text))
    talk = _talk(messages, tools)
    if model == BASH_MODEL:
        return _bash(talk)
    if _SMALL_TALK.fullmatch(talk.prompt):
        return Step(text=_introduction(talk))
    asked = _asked_file(talk.prompt)
    return _survey(talk) if asked is None else _question(talk, asked)


def _wants_summary(messages: Sequence[Message]) -> bool:
    roles = [message.role for message in messages]
    return roles == ["system", "user"] and "summar" in messages[0].text.lower()


def _talk(messages: Sequence[Message], tools: Sequence[Offer]) -> _Talk:
    """What *messages* come down to: what the user said last, and what was done since."""
    said = [index for index, message in enumerate(messages) if message.role == "user"]
    last = said[-1] if said else -1
    first = last
    while first > 0 and messages[first - 1].role == "user":
        first -= 1
    return _Talk(
        prompt=_prompt([message.text for message in messages[max(first, 0) : last + 1]]),
        results=tuple(_results(messages[last + 1 :])),
        made=sum(len(message.tool_calls or ()) for message in messages),
        offers={tool.function.name: tool.function for tool in tools},
    )


def _prompt(texts: Sequence[str]) -> str:
    """One text of *texts*. Where all are summaries of ours, it is the request the last one names."""
    tasks = [text.rpartition(SUMMARY_TASK)[2].partition("\n")[0] for text in texts if SUMMARY_TASK in text]
    plain = [text for text in texts if SUMMARY_TASK not in text]
    return "\n".join(plain or tasks[-1:])


def _results(messages: Sequence[Message]) -> Iterator[Result]:
    """
    The calls in *messages* with what they returned.

    Ids may be reused by a later message, so each is looked for among the results that follow its own.
    """
    for index, message in enumerate(messages):
        answers: dict[str, str] = {}
        for later in messages[index + 1 :]:
            if later.role != "tool":
                break
            answers[later.tool_call_id] = later.text
        for call in message.tool_calls or ():
            text = answers.get(call.id, "Not run: there is no result")
            yield Result(name=call.function.name, arguments=_decoded(call.function.arguments), text=text)


def _decoded(arguments: str) -> Mapping[str, object]:
    try:
        value: object = json.loads(arguments)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _introduction(talk: _Talk) -> str:
    """Who speaks and what it can do, with the tools it was given."""
    able = [name for name in ("ls", "glob", "read", "grep", "write", "bash") if name in talk.offers]
    offered = f"Of the tools offered I know {', '.join(able)}." if able else "No tool that I know is offered."
    return (
        "I am the scripted stand-in of turnwheel and no language model: I follow a script and compute what I "
        "say from tool results. Given tools for files, I survey a folder and write a report, or answer a "
        f"question that names a file. {offered}"
    )


def _bash(talk: _Talk) -> Step:
    """Run the command of the prompt, then say what it returned."""
    ran = [result for result in talk.results if result.name == "bash"]
    if ran:
        return Step(text=returned(ran[-1]))
    command = _COMMAND.search(talk.prompt)
    if command is None:
        return Step(text="I am a scripted stand-in; give me a command, as in `run: sleep 30; echo done`.")
    if "bash" not in talk.offers:
        return Step(text="I am a scripted stand-in and would run the command, but no `bash` is offered.")
    return talk.step("I run the command.", [("bash", {"command": command[1].strip()})])


def _asked_file(prompt: str) -> str | None:
    """The file that *prompt* asks about: named in a question that gives no order to write."""
    named = _NAMED_FILE.search(prompt)
    if named is None or "?" not in prompt or _ORDER.search(_NAMED_FILE.sub("", prompt)):
        return None
    return named[0]


def _question(talk: _Talk, path: str) -> Step:
    """Read the file, with `read` or a tool that takes just a path, then answer with facts."""
    if talk.results:
        result = talk.results[-1]
        return Step(text=about_file(path, result) if result.name == "read" else returned(result))
    readers = [name for name, offer in talk.offers.items() if _takes_path(offer)]
    if "read" in talk.offers:
        readers.insert(0, "read")
    if not readers:
        return Step(text=f"I cannot look at {path}. {_introduction(talk)}")
    return talk.step(f"I look at {path}.", [(readers[0], {"path": path})])


def _takes_path(offer: OfferedFunction) -> bool:
    """Whether a path is all that a tool needs, so that it can be called without knowing it."""
    return (offer.parameters or {}).get("required") == ["path"]


def _survey(talk: _Talk) -> Step:
    """The next stage of the survey whose tools are offered, or the answer."""
    survey = Survey.of(talk.results)
    called = {result.name for result in talk.results}
    begun = [number for number, (names, _) in enumerate(_STAGES, 1) if names & called]
    for _, stage in _STAGES[max(begun, default=0) :]:
        step = stage(talk, survey)
        if step.calls:
            return step
    if not talk.results:
        return Step(text=_introduction(talk))
    return Step(text=survey.answer(talk.prompt))


def _look(talk: _Talk, survey: Survey) -> Step:
    del survey  # nothing is known yet
    text = "I will look at what is here, read the introduction, and write a report. First the files."
    return talk.step(text, [("ls", {"path": "."}), ("glob", {"pattern": "**/*.py"})])


def _read(talk: _Talk, survey: Survey) -> Step:
    """Read the introduction, and search for the term that the prompt quotes or else for definitions."""
    term = _TERM.search(_TARGET.sub("", talk.prompt))
    searched = {"pattern": re.escape(term[1])} if term else {"pattern": DEFINITIONS, "glob": "*.py"}
    wishes: list[Wish] = [("read", {"path": survey.readme})] if survey.readme else []
    return talk.step("Now I look into the files.", [*wishes, ("grep", searched)])


def _write(talk: _Talk, survey: Survey) -> Step:
    path = _target(talk.prompt, survey.readme)
    wish: Wish = ("write", {"path": path, "content": survey.report(talk.prompt)})
    return talk.step(f"That is enough for a report. I write it to {path}.", [wish])


_Stage = Callable[[_Talk, Survey], Step]

_STAGES: tuple[tuple[frozenset[str], _Stage], ...] = (
    (frozenset({"ls", "glob"}), _look),
    (frozenset({"read", "grep"}), _read),
    (frozenset({"write"}), _write),
)
"""The tools of each stage, which tell that it was begun, and what it does."""


def _target(prompt: str, readme: str) -> str:
    """Where the report goes; never over the file it quotes."""
    named = [path.removeprefix("./") for path in _TARGET.findall(prompt)]
    return named[-1] if named and named[-1] != readme else REPORT
