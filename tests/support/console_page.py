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


async def press(page: Any, key: str, until: Any) -> None:
    """Press *key* until the locator *until* is visible."""
    # No key is heard for a moment after an answer, so that a second press of it is for no other question.
    while not await until.is_visible():
        await page.keyboard.press(key)


async def approve(page: Any, tool: str = "pay", label: str = "Approve") -> None:
    """Approve the question about *tool*, which may change anything and so takes two presses."""
    await page.get_by_role("button", name=label, exact=True).click()
    await page.get_by_role("button", name=f"Yes, run {tool}").click()
