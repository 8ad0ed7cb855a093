"""What a person does and sees at the console, for tests that play it in Chromium."""

from __future__ import annotations

from typing import Any


async def begin(page: Any, prompt: str) -> str:
    """Begin a session with *prompt*; gives its address."""
    await page.get_by_label("Prompt of a new session").fill(prompt)
    await page.get_by_role("button", name="Start").click()
    await page.wait_for_url("**/#/s/*")
    return str(page.url)


async def sees(page: Any, text: str, where: str = ".conversation") -> None:
    """Wait until *text* is there."""
    await page.locator(where).get_by_text(text).first.wait_for()
