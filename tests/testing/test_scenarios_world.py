"""A story tells each thing once: what is asked, what changes, and what no other line says."""

from __future__ import annotations

from typing import Any

import pytest

from turnwheel.effects import notices, records, requests
from turnwheel.effects.permissions import Basis, Verdict
from turnwheel.testing.scenarios_world import told_in_story

JUDGED: dict[str, Any] = {"call": "c", "tool": "look"}


@pytest.mark.parametrize(
    ("effect", "told"),
    [
        (notices.CallJudged(**JUDGED, verdict=Verdict.DENY, ground=Basis.RULE, at=0.0), True),
        (notices.CallJudged(**JUDGED, verdict=Verdict.ASK, ground=Basis.RULE, at=0.0), False),
        (notices.CallJudged(**JUDGED, verdict=Verdict.ALLOW, ground=Basis.TOOL, at=0.0), False),
        (notices.CallJudged(**JUDGED, verdict=Verdict.DENY, ground=Basis.PERSON, at=0.0), False),
        (records.SetInstructions(text=""), False),
        (records.SetInstructions(text="be brief"), True),
        (notices.ApprovalWithdrawn(request="r-1", at=0.0), False),
        (notices.ApprovalWithdrawn(request="r-1", late=True, at=0.0), True),
        (requests.SetTimer(id="r-1", due=1.0), True),
        (records.UseIds(next=4), False),
    ],
)
def test_a_story_tells_each_thing_once(effect: Any, *, told: bool) -> None:
    assert told_in_story(effect) is told
