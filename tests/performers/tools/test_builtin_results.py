"""Reading on where a tool's result was cut: each part says where it is, and is none to be cut again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from turnwheel.performers.tools.builtin import read_result
from turnwheel.performers.tools.decorator import ToolContext
from turnwheel.performers.tools.runner import NOTE

LONG = "".join([f"{number:>4} " for number in range(2_200)])


def reading(limit: int | None = None) -> ToolContext[object]:
    async def found(call: str) -> str | None:
        await asyncio.sleep(0)
        return LONG if call == "r-1" else None

    return ToolContext(cwd=Path("/"), deps=None, result_limit=limit, full_result=found)


@pytest.mark.parametrize(
    ("part", "limit", "end", "note"),
    [
        ((0, 10), None, 10, "[characters 0 to 10 of 11,000; offset=10 goes on]"),
        ((5, 10), None, 15, "[characters 5 to 15 of 11,000; offset=15 goes on]"),
        ((10_990, 10), None, 11_000, "[characters 10990 to 11000 of 11,000, its end]"),
        ((10_999, 10), None, 11_000, "[characters 10999 to 11000 of 11,000, its end]"),
        ((10_980, 19), None, 10_999, "[characters 10980 to 10999 of 11,000; offset=10999 goes on]"),
        ((), None, 10_000, "[characters 0 to 10000 of 11,000; offset=10000 goes on]"),
        # What is read is a result itself, and its note is a part of it.
        ((0, 500), NOTE + 50, 50, "[characters 0 to 50 of 11,000; offset=50 goes on]"),
        ((0, 20), NOTE + 50, 20, "[characters 0 to 20 of 11,000; offset=20 goes on]"),
        ((7, 20), 1, 8, "[characters 7 to 8 of 11,000; offset=8 goes on]"),
    ],
)
async def test_a_long_result_is_read_in_parts(
    part: tuple[int, ...], limit: int | None, end: int, note: str
) -> None:
    assert await read_result(reading(limit), "r-1", *part) == f"{LONG[part[0] if part else 0 : end]}\n{note}"


async def test_a_result_or_a_part_of_it_that_is_not_there_is_told() -> None:
    with pytest.raises(
        ValueError, match=r"^there is no character 11000: the result has 11,000; the first is 0$"
    ):
        await read_result(reading(), "r-1", 11_000)
    with pytest.raises(ValueError, match=f"^there is no long result '{'r' * 50}'; its id stands where"):
        await read_result(reading(), "r" * 60)
