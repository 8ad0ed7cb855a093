"""
Decide the stand-in's next answer: a pure function of the conversation.

Theory of operation. Nothing is remembered between requests. A task begins with the user's first text after
the last answer; later texts belong to it. The calls since then with their results are its work, and the next
answer follows from both. A survey has three stages of calls (look, read, write) and an answer. The stage
after the last begun one is next, so a survey ends whatever the tools return. Only offered tools are called.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast, final

import attrs

from ...states.rules.compaction import SUMMARY_INSTRUCTIONS
from .faults import FAULTS, SMALL_MODEL
from .report import (
    DEFINITIONS,
    SUMMARY_TASK,
    Survey,
    ToolReturn,
    about_file,
    returned,
    summary,
    work_done,
)
from .wire import (
    Offer,
    OfferedFunction,
    ScriptedAnswer,
    ScriptedCall,
    WireMessage,
)

STAND_IN_MODEL = "stand-in"
SLOW_MODEL = "stand-in-slow"
BASH_MODEL = "stand-in-bash"
MODELS = (STAND_IN_MODEL, SLOW_MODEL, BASH_MODEL, *FAULTS, SMALL_MODEL)

REPORT = "REPORT.md"
"""The path of the report, unless the prompt names a file."""

_FILE = r"(?!e\.g\b|i\.e\b)[\w./-]*\w\.[A-Za-z]\w{0,9}\b"
_NAMED_FILE = re.compile(rf"(?<![\w./-]){_FILE}")
_TARGET = re.compile(rf"\b(?:to|into|as)\s+[`'\"]?({_FILE})[`'\"]?", re.IGNORECASE)
_TERM = re.compile(r"[\"“`]([^\"“”`\n]{2,80})[\"”`]")
_ORDER = re.compile(r"\b(?:write|report|save|survey)\b", re.IGNORECASE)
_COMMAND = re.compile(r"\brun:[ \t]*(\S.*?)(?=\s+(?:and\s+)?run:|[ \t]*$)", re.IGNORECASE | re.MULTILINE)
_STOP = re.compile(r"\b(?:stop|enough|never mind|forget it)\b", re.IGNORECASE)
_LOOK_BACK = re.compile(r"\bwhat (?:did|have) you (?:do|done)\b", re.IGNORECASE)
_WORK = re.compile(
    r"\b(?:write|report|save|survey|look|find|search|compare|count|again|continue|go on)\b", re.IGNORECASE
)
_SMALL_TALK = re.compile(
    r"\W*(?:hello|hi|hey|good (?:morning|evening|day)|thanks|thank you|ok|okay|help|who are you"
    r"|what can you do)(?: there| again| very much)?\W*",
    re.IGNORECASE,
)

Wish = tuple[str, Mapping[str, str]]
"""A call to make: the tool's name and its arguments."""


@final
@attrs.frozen(kw_only=True)
class _Talk:
    """
    A conversation as the script sees it.

    *texts* are the user's texts of the task; *results* its work, *fresh* the part since the last text.
    *before* is the work of other tasks, *answered* whether there were any. *made* counts all calls, for the
    ids of new ones.
    """

    texts: tuple[str, ...]
    results: tuple[ToolReturn, ...]
    new_run: tuple[ToolReturn, ...]
    before: tuple[ToolReturn, ...]
    answered: bool
    made: int
    offers: Mapping[str, OfferedFunction]

    @property
    def prompt(self) -> str:
        """The whole task."""
        return "\n".join(self.texts)

    @property
    def last_text(self) -> str:
        """The user's last text."""
        return self.texts[-1] if self.texts else ""

    @property
    def steered(self) -> bool:
        """Whether the user has just steered the task."""
        return len(self.texts) > 1 and not self.new_run

    def step(self, text: str, wishes: Sequence[Wish]) -> ScriptedAnswer:
        """The answer with *text* and those of *wishes* whose tool is offered."""
        offered = [wish for wish in wishes if wish[0] in self.offers]
        text = f"You said {self.last_text!r}, so I go on with that. {text}" if self.steered else text
        calls = tuple(
            ScriptedCall(id=f"call_{number}", name=name, arguments=json.dumps(arguments, ensure_ascii=False))
            for number, (name, arguments) in enumerate(offered, self.made)
        )
        return ScriptedAnswer(text=text, calls=calls)


def decide(
    messages: Sequence[WireMessage], tools: Sequence[Offer] = (), *, model: str = STAND_IN_MODEL
) -> ScriptedAnswer:
    """
    The next answer in the conversation *messages*, with *tools* on offer.

    A transcript gets its summary, a question that names a file an answer from that file, and a question about
    past work an account of it. Any other prompt gets a survey of the folder with a report; after the first
    task only if it asks for work. *model* `BASH_MODEL` runs the commands after ``run:`` in the prompt
    instead.
    """
    if not tools and _wants_summary(messages):
        return ScriptedAnswer(text=summary(messages[-1].text))
    talk = _talk(messages, tools)
    if model == BASH_MODEL:
        return _bash(talk)
    if _LOOK_BACK.search(talk.last_text):
        return ScriptedAnswer(text=work_done((*talk.before, *talk.results)))
    return _stopped(talk) or _question(talk) or _task(talk)


def _wants_summary(messages: Sequence[WireMessage]) -> bool:
    roles = [message.role for message in messages]
    return roles == ["system", "user"] and messages[0].text.startswith(SUMMARY_INSTRUCTIONS.strip())


def _talk(messages: Sequence[WireMessage], tools: Sequence[Offer]) -> _Talk:
    """The current task in *messages*, and its work."""
    answers = [
        index
        for index, message in enumerate(messages)
        if message.role == "assistant" and not message.tool_calls and index + 1 < len(messages)
    ]
    first = answers[-1] + 1 if answers else 0
    task = messages[first:]
    texts, last = _texts(task)
    before_last, new_run = tuple(_results(task[:last])), tuple(_results(task[last:]))
    return _Talk(
        texts=texts,
        # Calls that were cancelled for the user's text are still to be done.
        results=(*[result for result in before_last if not result.given_up], *new_run),
        new_run=new_run,
        before=tuple(_results(messages[:first])),
        answered=bool(answers),
        made=sum(len(message.tool_calls or ()) for message in messages),
        offers={tool.function.name: tool.function for tool in tools},
    )


def _texts(task: Sequence[WireMessage]) -> tuple[tuple[str, ...], int]:
    """The user's texts in *task*, one for each time, and the index after the last one."""
    groups: list[list[str]] = []
    last = 0
    for index, message in enumerate(task):
        if message.role != "user":
            continue
        if groups and task[index - 1].role == "user":
            groups[-1].append(message.text)
        else:
            groups.append([message.text])
        last = index + 1
    return tuple([_prompt(group) for group in groups]), last


def _prompt(texts: Sequence[str]) -> str:
    """
    One text from *texts*. If all are summaries of this script, it is the request that the last one names.
    """
    tasks = [text.rpartition(SUMMARY_TASK)[2].partition("\n")[0] for text in texts if SUMMARY_TASK in text]
    plain = [text for text in texts if SUMMARY_TASK not in text]
    return "\n".join(plain or tasks[-1:])


def _results(messages: Sequence[WireMessage]) -> Iterator[ToolReturn]:
    """
    The calls in *messages* with their results.

    Ids may be reused by a later message, so each call takes its result from the messages right after its own.
    """
    for index, message in enumerate(messages):
        answers: dict[str, str] = {}
        for later in messages[index + 1 :]:
            if later.role != "tool":
                break
            answers[later.tool_call_id] = later.text
        for call in message.tool_calls or ():
            text = answers.get(call.id, "Not run: there is no result")
            yield ToolReturn(name=call.function.name, arguments=_decoded(call.function.arguments), text=text)


def _decoded(arguments: str) -> Mapping[str, object]:
    try:
        value: object = json.loads(arguments)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _introduction(talk: _Talk) -> str:
    """The stand-in's introduction, with the tools it was offered."""
    able = [name for name in ("ls", "glob", "read", "grep", "write", "bash") if name in talk.offers]
    offered = f"Of the tools offered I know {', '.join(able)}." if able else "No tool that I know is offered."
    return (
        "I am the scripted stand-in of turnwheel and no language model: I follow a script and compute what I "
        "say from tool results. Given tools for files, I survey a folder and write a report, or answer a "
        f"question that names a file. {offered}"
    )


def _bash(talk: _Talk) -> ScriptedAnswer:
    """Run the commands of the prompt at once, then quote their results."""
    ran = [result for result in talk.new_run if result.name == "bash"]
    if ran:
        return ScriptedAnswer(text="\n\n".join(returned(result) for result in ran))
    commands = _COMMAND.findall(talk.last_text)
    if not commands and (stopped := _stopped(talk)) is not None:
        return stopped
    if not commands:
        return ScriptedAnswer(
            text="I am a scripted stand-in; give me a command, as in `run: sleep 30; echo done`."
        )
    if "bash" not in talk.offers:
        return ScriptedAnswer(
            text="I am a scripted stand-in and would run the command, but no `bash` is offered."
        )
    text = "I run the command." if len(commands) == 1 else f"I run the {len(commands)} commands."
    return talk.step(text, [("bash", {"command": command}) for command in commands])


def _asked_file(prompt: str) -> str | None:
    """The file that *prompt* asks about: one named in a question that gives no order to write."""
    named = _NAMED_FILE.search(prompt)
    if named is None or "?" not in prompt or _ORDER.search(_NAMED_FILE.sub("", prompt)):
        return None
    return named[0]


def _question(talk: _Talk) -> ScriptedAnswer | None:
    """Read the file of a question, with `read` or a tool that takes only a path; answer with facts."""
    path = _asked_file(talk.last_text)
    if path is None:
        return None
    if talk.new_run:
        result = talk.new_run[-1]
        return ScriptedAnswer(text=about_file(path, result) if result.name == "read" else returned(result))
    readers = [name for name, offer in talk.offers.items() if _takes_path(offer)]
    if "read" in talk.offers:
        readers.insert(0, "read")
    if not readers:
        return ScriptedAnswer(text=f"I cannot look at {path}. {_introduction(talk)}")
    return talk.step(f"I look at {path}.", [(readers[0], {"path": path})])


def _takes_path(offer: OfferedFunction) -> bool:
    """Whether a path is the only required argument, so that the script can call an unknown tool."""
    return (offer.parameters or {}).get("required") == ["path"]


def _task(talk: _Talk) -> ScriptedAnswer:
    """A survey, unless the user greets or, after the first task, asks for no work."""
    if _SMALL_TALK.fullmatch(talk.last_text) or (talk.answered and not _WORK.search(talk.prompt)):
        return ScriptedAnswer(text=_introduction(talk))
    return _survey(talk)


def _stopped(talk: _Talk) -> ScriptedAnswer | None:
    """The final answer if the user steers the task to stop."""
    if not talk.steered or not _STOP.search(talk.last_text):
        return None
    so_far = f" {work_done(talk.results)}" if talk.results else ""
    return ScriptedAnswer(text=f"You said {talk.last_text!r}, so I stop here.{so_far}")


def _survey(talk: _Talk) -> ScriptedAnswer:
    """The next stage of the survey whose tools are offered, or the final answer."""
    survey = Survey.of(talk.results)
    called = {result.name for result in talk.results}
    # Go by the calls made, not by their success, so that a failing tool cannot keep a survey in one stage.
    begun = [number for number, (names, _) in enumerate(_STAGES, 1) if names & called]
    for _, stage in _STAGES[max(begun, default=0) :]:
        step = stage(talk, survey)
        if step.calls:
            return step
    if not talk.results:
        return ScriptedAnswer(text=_introduction(talk))
    return _elsewhere(talk) or ScriptedAnswer(text=survey.answer(talk.prompt))


def _elsewhere(talk: _Talk) -> ScriptedAnswer | None:
    """Write a denied text to the path that the person named in the denial; None if they named none."""
    writes = [result for result in talk.results if result.name == "write"]
    if not writes or not writes[-1].refused:
        return None
    tried = {result.arguments.get("path") for result in writes}
    named = [path for path in _NAMED_FILE.findall(writes[-1].text) if path not in tried]
    if not named:
        return None
    wish = {"path": named[0], "content": str(writes[-1].arguments.get("content", ""))}
    return talk.step(
        f"You said no to {writes[-1].arguments.get('path')}, so I write it to {named[0]}.", [("write", wish)]
    )


def _look(talk: _Talk, survey: Survey) -> ScriptedAnswer:
    del survey  # the first stage has no results yet
    text = "I will look at what is here, read the introduction, and write a report. First the files."
    return talk.step(text, [("ls", {"path": "."}), ("glob", {"pattern": "**/*.py"})])


def _read(talk: _Talk, survey: Survey) -> ScriptedAnswer:
    """Read the introduction, and search for the quoted term of the prompt or for definitions."""
    term = _TERM.search(_TARGET.sub("", talk.prompt))
    searched = {"pattern": re.escape(term[1])} if term else {"pattern": DEFINITIONS, "glob": "*.py"}
    wishes: list[Wish] = [("read", {"path": survey.readme})] if survey.readme else []
    return talk.step("Now I look into the files.", [*wishes, ("grep", searched)])


def _write(talk: _Talk, survey: Survey) -> ScriptedAnswer:
    """Write the report to the first named path, and its numbers to each other one."""
    path, *more = _targets(talk, survey.readme)
    wishes: list[Wish] = [("write", {"path": path, "content": survey.report(talk.prompt)})]
    wishes += [("write", {"path": other, "content": survey.digest()}) for other in more]
    text = f"That is enough for a report. I write it to {path}"
    return talk.step(f"{text}, and its numbers to {', '.join(more)}." if more else f"{text}.", wishes)


_Stage = Callable[[_Talk, Survey], ScriptedAnswer]

_STAGES: tuple[tuple[frozenset[str], _Stage], ...] = (
    (frozenset({"ls", "glob"}), _look),
    (frozenset({"read", "grep"}), _read),
    (frozenset({"write"}), _write),
)
"""The tools of each stage, whose calls mark it as begun, and its function."""


def _targets(talk: _Talk, readme: str) -> list[str]:
    """The paths for the report from the latest text that names any; never the file that it quotes."""
    for text in reversed(talk.texts):
        named = [path.removeprefix("./") for path in _TARGET.findall(text)]
        if found := [path for path in dict.fromkeys(named) if path != readme]:
            return found
    return [REPORT]
