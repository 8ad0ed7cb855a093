"""
The script of the stand-in: a pure function from a conversation to the next step of it.

Theory of operation. Nothing is remembered between requests. A task begins with what the user said after the
last answer; what they said on the way belongs to it. What was done for it are the calls since with their
results, and the next step follows from these two. A survey has three stages of calls (look, read, write) and
an answer; the stage after the last one that was begun is next, so whatever tools return, a survey ends. Only
tools that are offered are called.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast, final

import attrs

from ...states.rules.compaction import INSTRUCTIONS
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
"""Where the report goes unless the prompt names a file for it."""

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
"""A call as the script writes it: the tool's name and its arguments."""


@final
@attrs.frozen(kw_only=True)
class _Talk:
    """
    A conversation as the script sees it.

    *texts* are what the user said of the task; *results* what was done for it, *fresh* of them since the user
    spoke last. *before* was done for other tasks, *answered* says whether there were any. *made* counts all
    calls, for the ids of new ones.
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
    def said(self) -> str:
        """What the user said last."""
        return self.texts[-1] if self.texts else ""

    @property
    def steered(self) -> bool:
        """Whether the user spoke on the way, just now."""
        return len(self.texts) > 1 and not self.new_run

    def step(self, text: str, wishes: Sequence[Wish]) -> ScriptedAnswer:
        """The step that says *text* and makes those of *wishes* whose tool is offered."""
        offered = [wish for wish in wishes if wish[0] in self.offers]
        text = f"You said {self.said!r}, so I go on with that. {text}" if self.steered else text
        calls = tuple(
            ScriptedCall(id=f"call_{number}", name=name, arguments=json.dumps(arguments, ensure_ascii=False))
            for number, (name, arguments) in enumerate(offered, self.made)
        )
        return ScriptedAnswer(text=text, calls=calls)


def decide(
    messages: Sequence[WireMessage], tools: Sequence[Offer] = (), *, model: str = STAND_IN_MODEL
) -> ScriptedAnswer:
    """
    The next step of the conversation *messages*, with *tools* on offer.

    A transcript to be summarised gets its summary, a question that names a file an answer from that file, the
    question what was done an account, and any other prompt a survey of the folder with a report; later in a
    conversation only where it asks for some work. *model* `BASH_MODEL` runs the commands that follow ``run:``
    in the prompt instead.
    """
    if not tools and _wants_summary(messages):
        return ScriptedAnswer(text=summary(messages[-1].text))
    talk = _talk(messages, tools)
    if model == BASH_MODEL:
        return _bash(talk)
    if _LOOK_BACK.search(talk.said):
        return ScriptedAnswer(text=work_done((*talk.before, *talk.results)))
    return _stopped(talk) or _question(talk) or _task(talk)


def _wants_summary(messages: Sequence[WireMessage]) -> bool:
    roles = [message.role for message in messages]
    return roles == ["system", "user"] and messages[0].text.startswith(INSTRUCTIONS.strip())


def _talk(messages: Sequence[WireMessage], tools: Sequence[Offer]) -> _Talk:
    """What *messages* come down to: the task that is under way, and what was done for it."""
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
        # What was given up when the user spoke is still to be done.
        results=(*[result for result in before_last if not result.given_up], *new_run),
        new_run=new_run,
        before=tuple(_results(messages[:first])),
        answered=bool(answers),
        made=sum(len(message.tool_calls or ()) for message in messages),
        offers={tool.function.name: tool.function for tool in tools},
    )


def _texts(task: Sequence[WireMessage]) -> tuple[tuple[str, ...], int]:
    """What the user said in *task*, each time they spoke, and the index behind the last of it."""
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
    """One text of *texts*. Where all are summaries of ours, it is the request the last one names."""
    tasks = [text.rpartition(SUMMARY_TASK)[2].partition("\n")[0] for text in texts if SUMMARY_TASK in text]
    plain = [text for text in texts if SUMMARY_TASK not in text]
    return "\n".join(plain or tasks[-1:])


def _results(messages: Sequence[WireMessage]) -> Iterator[ToolReturn]:
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
            yield ToolReturn(name=call.function.name, arguments=_decoded(call.function.arguments), text=text)


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


def _bash(talk: _Talk) -> ScriptedAnswer:
    """Run the commands of the prompt, all at once, then say what they returned."""
    ran = [result for result in talk.new_run if result.name == "bash"]
    if ran:
        return ScriptedAnswer(text="\n\n".join(returned(result) for result in ran))
    commands = _COMMAND.findall(talk.said)
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
    """The file that *prompt* asks about: named in a question that gives no order to write."""
    named = _NAMED_FILE.search(prompt)
    if named is None or "?" not in prompt or _ORDER.search(_NAMED_FILE.sub("", prompt)):
        return None
    return named[0]


def _question(talk: _Talk) -> ScriptedAnswer | None:
    """Read the file that is asked about, with `read` or a tool that takes just a path; answer with facts."""
    path = _asked_file(talk.said)
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
    """Whether a path is all that a tool needs, so that it can be called without knowing it."""
    return (offer.parameters or {}).get("required") == ["path"]


def _task(talk: _Talk) -> ScriptedAnswer:
    """A survey, unless the user says hello or, later in a conversation, something that is no work."""
    if _SMALL_TALK.fullmatch(talk.said) or (talk.answered and not _WORK.search(talk.prompt)):
        return ScriptedAnswer(text=_introduction(talk))
    return _survey(talk)


def _stopped(talk: _Talk) -> ScriptedAnswer | None:
    """The end, where the user said on the way that there shall be one."""
    if not talk.steered or not _STOP.search(talk.said):
        return None
    so_far = f" {work_done(talk.results)}" if talk.results else ""
    return ScriptedAnswer(text=f"You said {talk.said!r}, so I stop here.{so_far}")


def _survey(talk: _Talk) -> ScriptedAnswer:
    """The next stage of the survey whose tools are offered, or the answer."""
    survey = Survey.of(talk.results)
    called = {result.name for result in talk.results}
    begun = [number for number, (names, _) in enumerate(_STAGES, 1) if names & called]
    for _, stage in _STAGES[max(begun, default=0) :]:
        step = stage(talk, survey)
        if step.calls:
            return step
    if not talk.results:
        return ScriptedAnswer(text=_introduction(talk))
    return _elsewhere(talk) or ScriptedAnswer(text=survey.answer(talk.prompt))


def _elsewhere(talk: _Talk) -> ScriptedAnswer | None:
    """Write what a person did not let us write where they said instead; None where they named no place."""
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
    del survey  # nothing is known yet
    text = "I will look at what is here, read the introduction, and write a report. First the files."
    return talk.step(text, [("ls", {"path": "."}), ("glob", {"pattern": "**/*.py"})])


def _read(talk: _Talk, survey: Survey) -> ScriptedAnswer:
    """Read the introduction, and search for the term that the prompt quotes or else for definitions."""
    term = _TERM.search(_TARGET.sub("", talk.prompt))
    searched = {"pattern": re.escape(term[1])} if term else {"pattern": DEFINITIONS, "glob": "*.py"}
    wishes: list[Wish] = [("read", {"path": survey.readme})] if survey.readme else []
    return talk.step("Now I look into the files.", [*wishes, ("grep", searched)])


def _write(talk: _Talk, survey: Survey) -> ScriptedAnswer:
    """The report into the first place that was named, and its numbers into each further one."""
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
"""The tools of each stage, which tell that it was begun, and what it does."""


def _targets(talk: _Talk, readme: str) -> list[str]:
    """Where the report goes, as was said last; never over the file it quotes."""
    for text in reversed(talk.texts):
        named = [path.removeprefix("./") for path in _TARGET.findall(text)]
        if found := [path for path in dict.fromkeys(named) if path != readme]:
            return found
    return [REPORT]
