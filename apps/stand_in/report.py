"""
Compute the stand-in's texts from the results of tools, and from nothing else.

The results of the built-in tools are read as text: a path on each line, ``path:line: text`` for a match, a
number and a tab before each line of a file, and notes in square brackets. If a note says that a result was
cut, a count is "at least". If a call failed, the report says so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import final

import attrs

MAX_ROWS = 20
"""Rows of a table or list in the report; one line below it counts the rest."""

MAX_EXAMPLES = 3
"""Matches shown of a search."""

MAX_QUOTE = 600
"""Characters quoted of anything: enough to recognise it."""

SUMMARY_TASK = "Latest request: "
"""Begins the line of a summary that keeps the prompt, so that the script can continue after it."""

DEFINITIONS = "^(def|class|async def) "
"""A search for definitions at the top level of Python files."""

_FAILURE = re.compile(
    r"Tool (?:raised an exception|execution crashed|timed out|not found)|Invalid arguments for "
    r"|Denied(?: by|:) |Skipped: |Cancelled(?:[:;]|$)|Not run: |Interrupted while |The process stopped while "
)
"""The beginning of a failed call's text; the wire has no other sign of failure."""

_GIVEN_UP = re.compile(r"Skipped: the user said |Cancelled$")
"""The beginning of the text of a call cancelled for an input of the user."""

_SIGNS = {
    "read": re.compile(r"^ *\d+\t|^\[the file is empty\]$", re.MULTILINE),
    "grep": re.compile(r"^.+?:\d+: |^\[", re.MULTILINE),
    "write": re.compile(r"wrote "),
    "bash": re.compile(r"^\[exit code ", re.MULTILINE),
}
"""Signs of success. A denial may have any text, so signs of failure alone are not enough."""

_EMPTY_NOTE = re.compile(r"\[(?:the (?:directory|file) is empty|no (?:file|line) matches)\]")
_CUT_NOTE = re.compile(
    r"\[\.\.\. (?:[\d,]+ (?:characters|bytes) cut|\d+ of \d+ characters are left out(?:: .*)?) \.\.\.\]"
)
_LINES_NOTE = re.compile(r"\[lines \d+ to \d+ of ([\d,]+); .*\]")
_MORE_NOTE = re.compile(r"\[(?:[\d,]+ more|(?:stopped after|left out:) .*)\]")
_INCOMPLETE = (_CUT_NOTE, _LINES_NOTE, _MORE_NOTE)
_NUMBERED = re.compile(r" *(\d+)\t(.*)")
_MATCH = re.compile(r"(.+?):(\d+): ?(.*)")
_README = re.compile(r"readme(?:\.(?:md|rst|txt))?", re.IGNORECASE)
_TEXT_FILE = re.compile(r".+\.(?:md|rst|txt|toml|cfg|ini|py)", re.IGNORECASE)
_BLOCK = re.compile(r"^\[(system|user|assistant|tool)\]$", re.MULTILINE)
_LEFT_OUT = re.compile(r"\n+\[\.\.\. [\d,]+ messages of [\d,]+ characters left out \.\.\.\]")
_CALLED = re.compile(r"^\[calls ([\w-]+)\]", re.MULTILINE)
_RETURNED = re.compile(r"^\[result of ([\w-]+)(, \w+)?\] ?(.*)", re.MULTILINE)


@final
@attrs.frozen(kw_only=True)
class ToolReturn:
    """A call of the tool *name* and the *text* it returned."""

    name: str
    arguments: Mapping[str, object]
    text: str

    @property
    def failed(self) -> bool:
        """Whether the call failed."""
        sign = _SIGNS.get(self.name)
        return bool(_FAILURE.match(self.text)) or (sign is not None and not sign.search(self.text))

    @property
    def refused(self) -> bool:
        """Whether a person denied the call in their own words."""
        return self.failed and not _FAILURE.match(self.text)

    @property
    def given_up(self) -> bool:
        """Whether the call was cancelled or skipped for an input of the user."""
        return bool(_GIVEN_UP.match(self.text))

    @property
    def incomplete(self) -> bool:
        """Whether a note marks the result as partial."""
        return any(note.fullmatch(line) for line in self.text.split("\n") for note in _INCOMPLETE)

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines that are neither blank nor notes; those next to a cut are left out."""
        if self.failed:
            return ()
        lines = self.text.split("\n")
        cuts = [index for index, line in enumerate(lines) if _CUT_NOTE.fullmatch(line)]
        torn = {index + side for index in cuts for side in (-1, 1)}
        whole = (line for index, line in enumerate(lines) if index not in torn)
        return tuple(line for line in whole if line.strip() and not _is_note(line))

    def count(self, number: int) -> str:
        """*number* as text, "at least" if the result is partial."""
        return f"at least {number:,}" if self.incomplete else f"{number:,}"


@final
@attrs.frozen(kw_only=True)
class File:
    """The *lines* of a file from `read`, of *total* lines; *complete* if all are here."""

    lines: tuple[str, ...]
    total: int
    complete: bool

    @classmethod
    def of(cls, result: ToolReturn) -> File:
        """Read the numbered lines of *result*."""
        lines = [match for line in result.lines if (match := _NUMBERED.fullmatch(line))]
        last = int(lines[-1][1]) if lines else 0
        note = _LINES_NOTE.fullmatch(result.text.rpartition("\n")[2])
        return cls(
            lines=tuple(line[2] for line in lines),
            total=int(note[1].replace(",", "")) if note else last,
            complete=not result.incomplete,
        )

    @property
    def heading(self) -> str:
        """The first Markdown heading, or an empty text."""
        return next((line.lstrip("#").strip() for line in self.lines if re.match(r"#{1,6} ", line)), "")

    @property
    def paragraph(self) -> str:
        """The first paragraph other than a heading, on one line."""
        taken: list[str] = []
        for line in self.lines:
            if line.strip() and not line.startswith("#"):
                taken.append(line.strip())
            elif taken:
                break
        return _clip(" ".join(taken))

    @property
    def words(self) -> int:
        """The number of words."""
        return sum(len(line.split()) for line in self.lines)


@final
@attrs.frozen(kw_only=True)
class Survey:
    """The results about a folder: the last one of each tool (None without a call), and each `write`."""

    listing: ToolReturn | None
    python: ToolReturn | None
    text: ToolReturn | None
    search: ToolReturn | None
    written: tuple[ToolReturn, ...]

    @classmethod
    def of(cls, results: Iterable[ToolReturn]) -> Survey:
        """The survey from *results*."""
        known = tuple(results)
        last = {result.name: result for result in known}
        return cls(
            listing=last.get("ls"),
            python=last.get("glob"),
            text=last.get("read"),
            search=last.get("grep"),
            written=tuple([result for result in known if result.name == "write"]),
        )

    @property
    def readme(self) -> str:
        """The introduction of the folder: a README, else the first text file, else empty."""
        seen = [*_lines(self.listing), *_lines(self.python)]
        names = [*filter(_README.fullmatch, seen), *filter(_TEXT_FILE.fullmatch, seen)]
        return names[0] if names else ""

    def report(self, task: str) -> str:
        """The report for *task*, as Markdown."""
        parts = [
            "# Report",
            "Written by the scripted stand-in of turnwheel, which counts and quotes what tools returned.",
            f"Asked for:\n\n{_quote(task)}",
            *self._files(),
            *self._matches(),
            *self._introduction(),
            *self._failures(),
        ]
        return "\n\n".join(parts) + "\n"

    def digest(self) -> str:
        """The numbers of the report, as Markdown."""
        numbers = "\n".join(f"- {number}" for number in self._numbers()) or "Nothing was counted."
        return f"# In numbers\n\n{numbers}\n"

    def answer(self, task: str) -> str:
        """The final answer: the numbers, and the path of the report or, if it was not written, its text."""
        opening = f"I looked over the folder. {'. '.join(self._numbers()) or 'I was shown nothing of it'}."
        there = [str(result.arguments.get("path", "")) for result in self.written if not result.failed]
        failed = [result for result in self.written if result.failed]
        if there:
            kept = "".join(f" {_refusal(result)}" for result in failed)
            limits = "As a scripted stand-in I count and quote, nothing more."
            return f"{opening} {_report_paths(there)}{kept} {limits}"
        if not self.written:
            why = "No `write` tool is offered, so the report is here instead of in a file."
        else:
            why = f"The report is not in a file but here: `write` said {_one_line(failed[0].text)!r}."
        return f"{opening} {why}\n\n{self.report(task)}"

    def _numbers(self) -> list[str]:
        numbers: list[str] = []
        if self.listing is not None and not self.listing.failed:
            numbers.append(f"Entries at its top: {self.listing.count(len(self.listing.lines))}")
        if self.python is not None and not self.python.failed:
            numbers.append(f"Python files: {self.python.count(len(self.python.lines))}")
        if self.search is not None and not self.search.failed:
            numbers.append(f"{_searched(self.search)}: {self.search.count(len(_matches(self.search)))}")
        return numbers

    def _files(self) -> list[str]:
        parts: list[str] = []
        if self.listing is not None and not self.listing.failed:
            names = self.listing.lines
            folders = self.listing.count(sum(name.endswith("/") for name in names))
            total = self.listing.count(len(names))
            parts.append(f"Entries at the top: {total}. Folders among them: {folders}.")
            parts.append(_rows([f"- `{name}`" for name in names]))
        if self.python is not None and not self.python.failed:
            folder_of = Counter(path.rpartition("/")[0] or "." for path in self.python.lines)
            total = self.python.count(len(self.python.lines))
            parts.append(f"Python files: {total}.")
            parts.append(_table("Folder", "Python files", sorted(folder_of.items())))
        return ["## Files", *filter(None, parts)] if parts else []

    def _matches(self) -> list[str]:
        if self.search is None or self.search.failed:
            return []
        found = _matches(self.search)
        per_file = Counter(path for path, _, _ in found)
        total, files = self.search.count(len(found)), self.search.count(len(per_file))
        shown = [f"- `{path}:{line}`: `{_clip(text.strip())}`" for path, line, text in found[:MAX_EXAMPLES]]
        parts = [
            "## Search",
            f"{_searched(self.search)}: {total}. Files they are in: {files}.",
            "\n".join(shown),
            _table("File", "Matches", per_file.most_common()),
        ]
        return [part for part in parts if part]

    def _introduction(self) -> list[str]:
        if self.text is None or self.text.failed:
            return []
        file = File.of(self.text)
        path = str(self.text.arguments.get("path", "the file"))
        heading = f"Its first heading is: {file.heading}" if file.heading else "It has no heading."
        about = [f"## {path}", f"`{path}` has {_counted(file.total, 'line')}. {heading}"]
        return [*about, "Its first paragraph:", _quote(file.paragraph)] if file.paragraph else about

    def _failures(self) -> list[str]:
        results = (self.listing, self.python, self.text, self.search)
        failed = [result for result in results if result is not None and result.failed]
        if not failed:
            return []
        lines = [f"- `{result.name}`: {_one_line(result.text)}" for result in failed]
        return ["## What did not work", "\n".join(lines)]


def _report_paths(paths: Sequence[str]) -> str:
    report, *more = paths
    numbers = f", its numbers in {', '.join(more)}" if more else ""
    return f"The report is in {report}{numbers}."


def _refusal(result: ToolReturn) -> str:
    return f"Of {result.arguments.get('path', 'a file')} `write` said {_one_line(result.text)!r}."


def work_done(results: Sequence[ToolReturn]) -> str:
    """The work of *results* in a sentence: calls by tool, and written files."""
    if not results:
        return "I have called no tool yet."
    written = [result for result in results if result.name == "write" and not result.failed]
    paths = ", ".join(dict.fromkeys(str(result.arguments.get("path")) for result in written))
    failed = sum(result.failed for result in results)
    calls = "1 tool call" if len(results) == 1 else f"{len(results):,} tool calls"
    not_all = f" {failed:,} of them did not succeed." if failed else ""
    wrote = f" I wrote {paths}." if written else ""
    return f"I made {calls}: {_tally(result.name for result in results)}.{not_all}{wrote}"


def about_file(path: str, result: ToolReturn) -> str:
    """The facts about the file at *path* that `read` returned."""
    if result.failed:
        return f"I could not read {path}: {_clip(result.text)}"
    file = File.of(result)
    words = f"{file.words:,}" if file.complete else f"at least {file.words:,}"
    facts = [f"{path} has {_counted(file.total, 'line')} and {words} words."]
    if file.heading:
        facts.append(f"Its first heading is {file.heading!r}.")
    if file.paragraph:
        facts.append(f"It begins:\n\n{_quote(file.paragraph)}")
    return " ".join(facts)


def returned(result: ToolReturn) -> str:
    """The result of a call, quoted."""
    how = "did not succeed" if result.failed else "returned"
    if not result.text.strip():
        return f"`{result.name}` {how} and said nothing."
    return f"`{result.name}` {how}:\n\n```\n{result.text.strip()}\n```"


def summary(transcript: str) -> str:
    """A summary of *transcript*: the requests, the tools, and the last result."""
    names = _CALLED.findall(transcript)
    results = _RETURNED.findall(transcript)
    failed = [f"{name}{how}" for name, how, _ in results if how]
    asked = _asked(transcript)
    facts = [
        f"Original task: {asked[0] if asked else 'none was given'}",
        f"{SUMMARY_TASK}{asked[-1] if asked else 'none was given'}",
        f"Actions taken: {len(names):,} tool calls ({_tally(names) or 'none'})",
        f"Errors: {_tally(failed) or 'none'}",
    ]
    if results:
        facts.append(f"Last result: {results[-1][0]}: {_one_line(results[-1][2])}")
    return "\n".join(facts)


def _asked(transcript: str) -> list[str]:
    """The requests of the user, each on one line; an earlier summary counts for the requests it names."""
    _, *blocks = _BLOCK.split(_LEFT_OUT.sub("", transcript).removesuffix("</conversation>"))
    texts = [text for role, text in zip(blocks[::2], blocks[1::2], strict=True) if role == "user"]
    asked: list[str] = []
    for text in texts:
        earlier = re.findall(rf"^(?:Original task: |{SUMMARY_TASK})(.*)", text, re.MULTILINE)
        asked += earlier or [_one_line(text)]
    return asked


def _is_note(line: str) -> bool:
    return any(note.fullmatch(line) for note in (_EMPTY_NOTE, *_INCOMPLETE))


def _lines(result: ToolReturn | None) -> tuple[str, ...]:
    return () if result is None else result.lines


def _matches(result: ToolReturn) -> list[tuple[str, str, str]]:
    """Path, line number and text of each match."""
    found = map(_MATCH.fullmatch, result.lines)
    return [(match[1], match[2], match[3]) for match in found if match]


def _searched(result: ToolReturn) -> str:
    pattern = result.arguments.get("pattern")
    return "Top-level definitions in Python" if pattern == DEFINITIONS else f"Lines that match `{pattern}`"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _tally(names: Iterable[str]) -> str:
    return ", ".join(f"{name} x{count}" for name, count in Counter(names).items())


def _table(first: str, second: str, rows: Sequence[tuple[str, int]]) -> str:
    """A Markdown table of two columns, or empty without rows."""
    if not rows:
        return ""
    return f"| {first} | {second} |\n| --- | ---: |\n" + _rows([f"| `{name}` | {n:,} |" for name, n in rows])


def _rows(rows: Sequence[str]) -> str:
    more = f"\n\nand {len(rows) - MAX_ROWS:,} more" if len(rows) > MAX_ROWS else ""
    return "\n".join(rows[:MAX_ROWS]) + more


def _quote(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in _clip(text).splitlines()) or "> (nothing)"


def _one_line(text: str) -> str:
    return _clip(" ".join(text.split()))


def _clip(text: str) -> str:
    return text if len(text) <= MAX_QUOTE else text[:MAX_QUOTE].rstrip() + "..."
