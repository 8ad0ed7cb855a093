"""The console without a browser: its page and files, and what it asks of sessions."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any, get_args

import pytest
from support.http_server import Asking, scripted, serving

from turnwheel.apps.console.routes import UNBEGUN, page_files
from turnwheel.effects.events import Event, Failure
from turnwheel.engine.core.recovery import WHY
from turnwheel.engine.journal.entries import Entry
from turnwheel.testing.scripted import calls, says

PAY = calls(("pay", {"amount": 5}))
PAGE = files("turnwheel.apps.console").joinpath("page")
NAMES = sorted(each.name for each in PAGE.iterdir())


async def asked(server: Asking, session: str) -> str:
    await server.post("/api/sessions", {"id": session, "prompt": "Pay"}, 201)
    return f"/api/sessions/{session}/questions/{(await server.question(session))['id']}"


async def test_the_page_runs_nothing_that_came_as_text() -> None:
    async with serving(scripted()) as server:
        answer = await server.client.get("/")
        policy = answer.headers["content-security-policy"]
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'self'" in policy
        assert "require-trusted-types-for 'script'" in policy
        assert "unsafe" not in policy
        assert not re.search(r"<script(?! type=\"module\" src=)|<style|\sstyle=|\son\w+=", answer.text)


async def test_all_that_the_page_names_is_there() -> None:
    async with serving(scripted()) as server:
        for name in (*NAMES, "chart.svg", "chart.css"):
            text = await server.get(f"/console/{name}")
            for other in re.findall(r'(?:from "\./|["\']console/)([\w.]+)["\']', text):
                assert page_files().get(other) is not None, f"{name} names {other}"


def test_no_file_of_the_page_makes_elements_of_text() -> None:
    for name in NAMES:
        text = PAGE.joinpath(name).read_text("utf-8")
        assert not re.search(
            r"innerHTML|outerHTML\s*=|insertAdjacentHTML|document\.write|\beval\b|DOMParser", text
        ), name


async def test_a_browser_finds_the_icon_by_its_old_name() -> None:
    async with serving(scripted(), tokens={"secret": "one"}) as server:
        answer = await server.client.get("/favicon.ico")
        assert answer.headers["content-type"] == "image/svg+xml"
        assert answer.content == page_files()["icon.svg"]


@pytest.mark.parametrize("name", ["nothing.js", "..", "routes.py", "%2e%2e%2froutes.py", "page"])
async def test_other_files_are_none_of_the_page(name: str) -> None:
    async with serving(scripted()) as server:
        await server.get(f"/console/{name}", 404 if name != ".." else 200)


async def test_the_page_is_for_those_without_a_token_and_its_data_is_not() -> None:
    async with serving(scripted(says("One.")), tokens={"secret": "one"}) as server:
        await server.get("/")
        await server.get("/console/app.js")
        await server.get("/api/sessions/s/outline", 401)
        me = {"Authorization": "Bearer secret"}
        await server.post("/api/sessions", {"id": "s", "prompt": "One?"}, 201, headers=me)
        assert (await server.get("/api/sessions/s/outline", headers=me))["items"]


async def test_the_outline_has_the_way_of_each_step_and_comes_in_parts() -> None:
    async with serving(scripted(PAY, says("Paid."))) as server:
        await server.post(await asked(server, "s"), {"decision": "approve"})
        await server.done("s")
        whole = await server.get("/api/sessions/s/outline")
        assert whole["next"] is None
        steps = whole["items"]
        assert [step["number"] for step in steps] == list(range(len(steps)))
        assert (steps[0]["event"], steps[0]["posted"], steps[0]["state"]) == ("UserSent", True, "new")
        assert steps[-1]["way"][0] == "streaming"
        assert steps[-1]["way"][-1] == steps[-1]["state"] == "done"
        assert steps[-1]["spend"]["turns"] == 2
        parts: list[Any] = []
        since: int | None = 0
        while since is not None:
            part = await server.get(f"/api/sessions/s/outline?from={since}&limit=4")
            parts += part["items"]
            since = part["next"]
        assert parts == steps


async def test_a_setting_that_waits_for_the_next_run_is_in_the_outline() -> None:
    async with serving(scripted(says("One."), models=["openai:other"])) as server:
        await server.post("/api/sessions", {"id": "s", "prompt": "One?"}, 201)
        await server.done("s")
        await server.post("/api/sessions/s/control", {"model": "openai:other", "mode": "plan"})
        steps = (await server.get("/api/sessions/s/outline"))["items"]
        assert [(step["posted"], step["setting"]) for step in steps[-2:]] == [
            (True, {"model": "openai:other"}),
            (True, {"mode": "plan"}),
        ]
        assert {step["model"] for step in steps[1:]} == {"openai:test"}


async def test_a_call_is_explained_and_a_stranger_to_the_session_is_not_there() -> None:
    async with serving(scripted(PAY, says("Paid."))) as server:
        await server.post(await asked(server, "s"), {"decision": "deny", "reason": "too much"})
        await server.done("s")
        (step, *_) = [
            each
            for each in (await server.get("/api/sessions/s/steps"))["items"]
            if each["state"] == "confirming"
        ]
        call = next(effect["call"] for effect in step["effects"] if effect["type"] == "CallJudged")
        told = await server.get(f"/api/sessions/s/calls/{call}/why")
        assert (told["session"], told["tool"]) == ("s", "pay")
        assert "too much" in str(told["moments"])
        await server.get("/api/sessions/s/calls/other/why", 404)


async def test_a_fork_and_its_original_are_compared() -> None:
    async with serving(scripted(PAY, says("Paid."), says("Not paid."))) as server:
        question = await asked(server, "s")
        await server.post(question, {"decision": "approve"})
        await server.done("s")
        steps = (await server.get("/api/sessions/s/outline"))["items"]
        at = next(step["number"] for step in steps if step["event"] == "ApprovalGiven")
        await server.post(
            "/api/sessions/s/fork", {"id": "f", "at": at, "instead": {"type": "Deny", "message": "no"}}, 201
        )
        found = await server.get("/api/sessions/s/compare?other=f")
        one, other = found["one"], found["other"]
        assert (one["event"], one["before"], one["state"]) == ("ApprovalGiven", "confirming", "executing")
        assert other["event"] == "ApprovalGiven"
        assert found["where"] == ["event.decision.type"]
        same = await server.get("/api/sessions/s/compare?other=s")
        assert same == {"one": None, "other": None, "where": []}
        await server.get("/api/sessions/s/compare", 404)


def test_the_page_has_words_for_each_event_and_entry() -> None:
    known = re.findall(r"^  (\w+): \[", PAGE.joinpath("words.js").read_text("utf-8"), re.MULTILINE)
    asked = {kind.__name__ for union in (Event, Entry) for kind in get_args(union)}
    assert set(known) == asked - {"Posted", "Stepped"}


async def test_entries_and_calls_are_told_in_the_outline() -> None:
    async with serving(scripted(PAY, says("Paid."))) as server:
        await server.post(await asked(server, "s"), {"decision": "approve"})
        await server.done("s")
        steps = (await server.get("/api/sessions/s/outline"))["items"]
        told = {step["event"]: (step["title"], step["about"]) for step in steps}
        assert told["RunOpened"] == ("openai:test", "")
        assert told["Titled"] == ("Pay", "")
        assert told["ApprovalGiven"][1] == told["ToolFinished"][1] == "pay"


async def test_a_session_without_children_is_a_family_of_one() -> None:
    async with serving(scripted(says("One."))) as server:
        await server.post("/api/sessions", {"id": "s", "prompt": "One?"}, 201)
        await server.done("s")
        family = await server.get("/api/sessions/s/family")
        assert (family["id"], family["children"], family["spend"]["turns"]) == ("s", [], 1)
        assert (family["state"], family["reason"]) == ("done", "end_turn")


async def test_a_session_that_went_back_is_no_test() -> None:
    async with serving(scripted(says("One."))) as server:
        await server.post("/api/sessions", {"id": "s", "prompt": "One?"}, 201)
        await server.done("s")
        await server.post("/api/sessions/s/branch", {"run": ""})
        assert "went back" in (await server.get("/api/sessions/s/test.py", 409))["detail"]


async def test_the_exported_test_passes_and_fails_for_another_story() -> None:
    tricky = 'A \\ and """three""" {braces}'
    async with serving(scripted(PAY, says(tricky))) as server:
        await server.post(await asked(server, "s"), {"decision": "approve", "arguments": {"amount": 6}})
        await server.done("s")
        text = await server.get("/api/sessions/s/test.py")
    names: dict[str, Any] = {}
    exec(text, names)  # noqa: S102  # what a person would save and run
    names["test_the_session_goes_as_it_went"]()
    names["STORY"] = names["STORY"].replace("paid 6", "paid 7", 1)
    with pytest.raises(AssertionError):
        names["test_the_session_goes_as_it_went"]()


@pytest.mark.parametrize("message", ["no process had begun to ask here", "nobody had begun to ask here"])
async def test_that_a_model_was_not_asked_before_a_fork_is_said_in_plain_words(
    message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As versions before this one have written it, too.
    monkeypatch.setitem(WHY, Failure.UNBEGUN, message)
    async with serving(scripted(says("One."), says("Another."))) as server:
        await server.post("/api/sessions", {"id": "s", "prompt": "One?"}, 201)
        await server.done("s")
        steps = (await server.get("/api/sessions/s/outline"))["items"]
        at = next(step["number"] for step in steps if step["event"] == "ModelFinished")
        await server.post("/api/sessions/s/fork", {"id": "copy", "at": at}, 201)
        await server.post("/api/sessions/copy/resume", status=202)
        await server.done("copy")
        titles = [step["title"] for step in (await server.get("/api/sessions/copy/outline"))["items"]]
        assert [title for title in titles if "not asked" in title] == [UNBEGUN]
        assert not any(message in title for title in titles)
        # What is stored stays as it is.
        step = await server.get(f"/api/sessions/copy/steps/{titles.index(UNBEGUN)}")
        assert step["event"]["message"] == message
