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
        (notices.CallJudged(**JUDGED, verdict=Verdict.DENY, ground=Basis.RULE), True),
        (notices.CallJudged(**JUDGED, verdict=Verdict.ASK, ground=Basis.RULE), False),
        (notices.CallJudged(**JUDGED, verdict=Verdict.ALLOW, ground=Basis.TOOL), False),
        (notices.CallJudged(**JUDGED, verdict=Verdict.DENY, ground=Basis.PERSON), False),
        (records.SetInstructions(text=""), False),
        (records.SetInstructions(text="be brief"), True),
        (notices.ApprovalWithdrawn(request="r-1"), False),
        (notices.ApprovalWithdrawn(request="r-1", late=True), True),
        (requests.SetTimer(id="r-1", due=1.0), True),
        (records.UseIds(next=4), False),
    ],
)
def test_a_story_tells_each_thing_once(effect: Any, *, told: bool) -> None:
    assert told_in_story(effect) is told
