"""The list and the inbox, told by the stream of sessions: seen in Chromium, changed by another client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest
from support.console_page import sees
from support.http_server import scripted

from turnwheel.testing.scripted import calls, says

if TYPE_CHECKING:
    from .conftest import Opens

pytestmark = [pytest.mark.real, pytest.mark.timeout(180, func_only=True)]

PAY = calls(("pay", {"amount": 5}))


def asked(page: Any) -> list[str]:
    """The lists that *page* asks for from now on."""
    found: list[str] = []

    def note(request: Any) -> None:
        if "api/sessions?" in request.url:
            found.append(request.url)

    page.on("request", note)
    return found


async def test_what_another_client_does_is_in_the_list_and_the_inbox_without_asking(console: Opens) -> None:
    async with console(scripted(says("One."), PAY, says("Paid."))) as opened:
        page = await opened.page()
        await sees(page, "No session yet", ".list")
        lists = asked(page)
        async with httpx.AsyncClient(base_url=opened.url) as other:
            await other.post("/api/sessions", json={"id": "first", "prompt": "First"})
            await page.locator(".session-row", has_text="finished").wait_for()
            await other.post("/api/sessions", json={"id": "second", "prompt": "Pay the bill"})
            await sees(page, "Inbox, 1 open", ".inbox")
            # What was written last stands first.
            assert [text.split("\n")[0] for text in await page.locator(".session-row").all_inner_texts()] == [
                "Pay the bill",
                "First",
            ]
            # A filter holds for what comes, too.
            await page.get_by_label("Search sessions").fill("BILL")
            await page.locator(".session-row", has_text="First").wait_for(state="detached")
            asked_for_the_filter = len(lists)
            await other.post("/api/sessions", json={"id": "third"})
            question = (await other.get("/api/sessions/second")).json()["questions"][0]["id"]
            await other.post(f"/api/sessions/second/questions/{question}", json={"decision": "approve"})
            await page.locator(".session-row", has_text="finished").wait_for()
            await sees(page, "Nothing waits for you.", ".inbox")
            assert await page.locator(".session-row").count() == 1
            await other.delete("/api/sessions/second")
            await page.locator(".session-row").wait_for(state="detached")
            await sees(page, "No session is like that.", ".list")
        assert len(lists) == asked_for_the_filter


async def test_a_list_whose_server_was_away_is_the_one_of_now(console: Opens) -> None:
    async with console(scripted(says("One."), says("Two."))) as opened:
        async with httpx.AsyncClient(base_url=opened.url) as other:
            await other.post("/api/sessions", json={"id": "first", "prompt": "First"})
            page = await opened.page()
            await page.locator(".session-row", has_text="finished").wait_for()
            await page.context.set_offline(True)
            assert opened.server is not None
            opened.server.lists.end()
            await sees(page, "the server cannot be reached", ".list")
            await other.delete("/api/sessions/first")
            await other.post("/api/sessions", json={"id": "second", "prompt": "Second"})
            await page.context.set_offline(False)
            await page.locator(".session-row", has_text="Second").wait_for()
            await page.locator(".session-row", has_text="First").wait_for(state="detached")
            assert not await page.get_by_text("the server cannot be reached").is_visible()
            # And what comes from now on.
            lists = asked(page)
            await other.post("/api/sessions", json={"id": "third"})
            await page.locator(".session-row", has_text="third").wait_for()
        assert lists == []
        opened.excuse("ERR_INTERNET_DISCONNECTED")
