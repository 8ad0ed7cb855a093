"""Makes the description of the package out of README.md. All else is said in pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent

# A link or picture of README.md: its mark, its text and its target.
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def description(readme: str, source: str = "", version: str = "") -> str:
    """
    *readme* for a page that has none of our files, such as that of a package index.

    Links and pictures go to the tag of *version* at *source*, an address in the form of GitHub's. Without
    one, of a link its text is left, and of a picture nothing.
    """

    def elsewhere(link: re.Match[str]) -> str:
        mark, text, target = link.groups()
        if "://" in target:
            return link[0]
        if source:
            return f"{mark}[{text}]({source}/{'raw' if mark else 'blob'}/v{version}/{target})"
        return "" if mark else text

    return LINK.sub(elsewhere, readme)


def main() -> None:
    """What setuptools runs."""
    from setuptools import setup  # noqa: PLC0415  # tests read the function above without it

    readme = (ROOT / "README.md").read_text("utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    setup(
        script_name=Path(__file__).name,  # by which it is no module of the package, whose folder this is
        long_description=description(readme, project.get("urls", {}).get("Source", ""), project["version"]),
        long_description_content_type="text/markdown",
    )


if __name__ == "__main__":
    main()
