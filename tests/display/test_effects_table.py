"""The effects of a step: in a notebook requests in a table and the rest folded, and elsewhere a tuple."""

from __future__ import annotations

import pickle
from copy import deepcopy
from html.parser import HTMLParser

from turnwheel import MemoryStore
from turnwheel.display.effects_table import Effects
from turnwheel.display.notebook import LINES_SHOWN
from turnwheel.effects import Cancel, RunTool
from turnwheel.effects.config import Config, ModelSpec
from turnwheel.effects.notices import Ignored
from turnwheel.effects.records import SetModel, UseIds
from turnwheel.engine import replay
from turnwheel.engine.core.machine import Machine
from turnwheel.engine.journal.encoding import encode_entry
from turnwheel.engine.journal.entries import RunOpened
from turnwheel.testing import MachineHarness, call

EVIL = "<script>alert(1)</script>"
READ = RunTool(id="r-1", call="c", tool="read", arguments='{"path": "a"}')
IGNORED = Ignored(event="TimerFired", state="done", at=0.0)


class Shown(HTMLParser):
    """What a reader sees of HTML: the cells of each row, the text outside of tables, and the tags."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.outside = ""
        self.tags: set[str] = set()
        self.opened = False
        self._in_table = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "table":
            self._in_table = True
        elif tag == "tr":
            self.rows.append([])
        elif tag in {"td", "th"}:
            self.rows[-1].append("")
        elif tag == "details":
            self.opened = "open" in dict(attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self._in_table = False

    def handle_data(self, data: str) -> None:
        if self._in_table:
            self.rows[-1][-1] += data
        else:
            self.outside += f"{data}\n"


def shown(effects: tuple[object, ...]) -> Shown:
    assert isinstance(effects, Effects)
    return Shown(effects._repr_html_())  # pyright: ignore[reportPrivateUsage]  # as a notebook does


def test_requests_stand_in_rows_and_the_rest_is_folded_behind_its_count() -> None:
    table = shown(Effects((UseIds(next=2), READ, IGNORED, Cancel(request="r-0"), SetModel(model="m"))))
    assert table.rows == [
        ["request", "id", "what"],
        ["RunTool", "r-1", 'read {"path": "a"}'],
        ["Cancel", "r-0", "stop this request"],
    ]
    assert table.outside.splitlines() == [
        "2 records and 1 notice",
        "UseIds next=2",
        "Ignored TimerFired",
        "SetModel m",
    ]
    assert not table.opened


def test_without_a_request_the_rest_is_open() -> None:
    table = shown(Effects((IGNORED,)))
    assert table.outside.splitlines() == ["1 notice", "Ignored TimerFired"]
    assert table.opened
    assert "table" not in table.tags


def test_requests_alone_have_nothing_folded() -> None:
    assert "details" not in shown(Effects((READ,))).tags


def test_no_effects_say_so() -> None:
    assert shown(Effects()).outside == "No effects\n"


def test_texts_of_models_are_shown_as_text() -> None:
    run = Machine.start(Config(model=ModelSpec(name=EVIL)), EVIL, run=EVIL)
    first = shown(run.advance())
    assert first.rows[1][:2] == ["CallModel", f"{EVIL}-1"]
    assert first.rows[1][2].startswith(EVIL)
    assert f'AppendMessage user "{EVIL}"' in first.outside
    assert first.tags <= {
        "div",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "b",
        "details",
        "summary",
        "pre",
    }


def test_of_very_many_requests_the_first_are_shown_and_the_others_counted() -> None:
    table = shown(Effects([READ] * (LINES_SHOWN + 3)))
    # Also the head and the count.
    assert len(table.rows) == LINES_SHOWN + 2
    assert table.rows[-1] == ["(3 more)"]
    assert len(shown(Effects([READ] * LINES_SHOWN)).rows) == LINES_SHOWN + 1


async def test_all_steps_by_hand_and_replayed_ones_give_a_table() -> None:
    run = MachineHarness()
    told = run.say(call(0, "look", path="a"))
    assert [row[0] for row in shown(told).rows] == ["request", "RunTool"]
    assert shown(run.effects).rows == shown(told).rows
    store = MemoryStore()
    await store.append(
        "s", 0, [encode_entry(RunOpened(at=1.0, run="r", config=Config(model=ModelSpec("m"))))]
    )
    [step] = [step async for step in replay(store, "s")]
    assert shown(step.effects).rows[0] == ["request", "id", "what"]


def test_effects_are_their_tuple() -> None:
    plain = (READ, IGNORED)
    effects = Effects(plain)
    assert effects == plain
    assert hash(effects) == hash(plain)
    assert repr(effects) == repr(plain)
    one, other = effects
    assert (one, other, effects[0], effects[1:]) == (READ, IGNORED, READ, (IGNORED,))
    assert pickle.loads(pickle.dumps(effects)) == plain  # noqa: S301  # ours
    assert deepcopy(effects) == plain


def test_a_driver_gets_the_bare_tuple() -> None:
    """Its steps do not pay for what only a notebook shows."""
    machine = Machine.start(Config(model=ModelSpec(name="m")), "go")
    step = machine.step()
    assert type(step.effects) is tuple
    assert machine.commit(step) is step.effects
