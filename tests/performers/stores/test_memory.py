"""The store of this process alone: its pages, its news, and that it lets go of everything."""

from __future__ import annotations

import sys

from turnwheel import MemoryStore


async def test_pages_go_from_the_last_written_to_the_first() -> None:
    store = MemoryStore()
    for name in ("a", "b", "c", "d"):
        await store.append(name, 0, [b"x"])
    await store.append("b", 1, [b"y"])
    await store.delete("c")
    listed = await store.list()
    assert [info.session for info in listed] == ["b", "d", "a"]
    for prefix in ("", "d"):
        after = [[one.session for one in await store.list(1, info.stamp, prefix)] for info in listed]
        assert after == ([["d"], ["a"], []] if not prefix else [["d"], [], []])
    stamps = [info.stamp for info in listed]
    await store.append("c", 0, [b"x"])
    (newest,) = await store.list(1)
    assert newest.stamp > max(stamps)
    assert newest.session == "c"


async def test_news_are_of_those_that_changed_and_of_no_others() -> None:
    store, names = MemoryStore(), ("a", "b", "c", "never")
    first, told = await store.news(names, None)
    assert {*told} <= {*names}
    for name in ("a", "b", "c"):
        await store.append(name, 0, [b"x"])
    mark, told = await store.news(names, first)
    assert sorted(told) == ["a", "b", "c"]
    assert await store.news(names, mark) == (mark, [])
    await store.append("b", 1, [b"y"])
    mark, told = await store.news(names, mark)
    assert told == ["b"]
    await store.delete("b")
    mark, told = await store.news(names[:3], mark)
    assert told == ["b"]
    # The last one that was written to is gone: what is written from now on is news all the same.
    await store.append("a", 1, [b"y"])
    _, told = await store.news(names[:3], mark)
    assert told == ["a"]


async def test_a_name_that_is_begun_anew_has_another_incarnation() -> None:
    store = MemoryStore()
    incarnations = []
    for _ in range(3):
        incarnations.append(await store.append("s", 0, [b"x"]))
        await store.delete("s")
    assert len({*incarnations}) == 3
    assert all(incarnations)


async def test_checkpoints_are_those_from_the_first_on_and_the_new_one() -> None:
    store = MemoryStore()
    await store.append("s", 0, [b"e"] * 9)
    for position in (1, 3, 5):
        await store.keep_checkpoint("s", position, b"%d" % position, 0)
    await store.keep_checkpoint("s", 5, b"5 again", 3)
    assert await store.checkpoints("s") == [b"3", b"5 again"]


async def test_a_store_that_is_closed_holds_on_to_nothing() -> None:
    store, due = MemoryStore(), float("12345.678")
    told = [f"{what}, which only this test has" for what in ("name", "entry", "about", "lease", "meter")]
    name, (entry, about, lease, meter) = told[0], [text.encode() for text in told[1:]]

    def held() -> list[int]:
        return [sys.getrefcount(one) for one in (name, entry, about, lease, meter, due)]

    before = held()
    await store.append(name, 0, [entry], about)
    await store.lease(name, None, lease)
    await store.meter("m", None, meter)
    await store.set_deadline(name, due)
    assert [now > then for now, then in zip(held(), before, strict=True)] == [True] * 6
    await store.close()
    await store.close()
    assert held() == before


async def test_of_many_sessions_that_are_overdue_a_hundred_are_told_at_a_time() -> None:
    store = MemoryStore()
    names = [f"s{number:03}" for number in range(150)]
    for number, name in enumerate(names):
        await store.append(name, 0, [b"x"])
        await store.set_deadline(name, float(number))
    assert await store.overdue(149.0) == names[:100]
    assert await store.overdue(149.0, 100) == names[100:]
    assert await store.overdue(1.0) == names[:2]
