"""Take the pictures of docs/console.md: a session of the stand-in, played in Chromium."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run")
WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 390, "height": 760}
PROMPTS = (
    "Look over this repository and write a report to REPORT.md",
    "Write a survey to NOTES.md",
    "What did you do?",
)


def take(url: str, browser: Any, folder: Path) -> None:
    def opened(path: str, scheme: str = "light", size: dict[str, int] = WIDE) -> Any:
        page = browser.new_context(viewport=size, color_scheme=scheme).new_page()
        page.goto(url + path)
        return page

    def shoot(page: Any, name: str) -> None:
        # What is last to come: the chart, or the rows of the list.
        page.wait_for_timeout(700)
        page.screenshot(path=folder / f"{name}.png")

    sessions = []
    page = opened("/")
    for prompt in PROMPTS:
        page.get_by_label("Prompt of a new session").fill(prompt)
        page.get_by_role("button", name="Start").click()
        page.wait_for_url("**/#/s/*")
        sessions.append(page.url.removeprefix(url))
        page.locator(".question" if prompt != PROMPTS[-1] else ".item.end").wait_for()
        page.goto(url + "/#/")
    shoot(page, "list")
    shoot(opened("/", "dark", NARROW), "question")
    page = opened(sessions[0])
    page.locator(".question").wait_for()
    shoot(page, "session")
    shoot(opened(sessions[0], size=NARROW), "narrow")
    page.get_by_role("button", name="Show all to approve").click()
    page.get_by_role("button", name="Approve", exact=True).click()
    page.locator(".item.end").wait_for()
    page = opened(sessions[0], "dark")
    page.locator(".row", has_text="Model answered").nth(1).click()
    page.get_by_role("tab", name="Step").click()
    shoot(page, "slider")
    page.get_by_role("tab", name="Timeline").click()
    page.locator(".row", has_text="Answer received").click()
    page.get_by_role("button", name="Fork here").click()
    page.get_by_label("What happens instead").select_option("Deny write")
    page.get_by_label("Reason").fill("Not into a file, please")
    page.get_by_role("button", name="Fork", exact=True).click()
    page.get_by_text("They part here").wait_for()
    page.locator(".side").nth(1).locator(".item.end").wait_for()
    shoot(page, "fork")


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        Path(work, "README.md").write_text("# Demo\n\nA small project.\n", "utf-8")
        Path(work, "demo.py").write_text("def greet(name):\n    return f'Hello, {name}'\n", "utf-8")
        command = (
            Path(sys.executable).with_name("turnwheel"),
            "serve",
            "--stand-in",
            "--store",
            f"{work}.db",
        )
        with (
            subprocess.Popen(command, cwd=work, stdout=subprocess.PIPE, text=True) as server,
            sync_playwright() as playwright,
        ):
            assert server.stdout is not None
            url = server.stdout.readline().split()[-1]
            path = shutil.which("chromium") or shutil.which("chromium-browser")
            browser = playwright.chromium.launch(executable_path=path, args=[*FLAGS])
            take(url, browser, folder)
            browser.close()
            server.terminate()
    for left in Path(work).parent.glob(f"{Path(work).name}.db*"):
        left.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
