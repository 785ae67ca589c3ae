"""Ordered lines between actors, where a delivery may take long, be made again, or meet a successor."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from gandiva_ray.runtime.tasks import Line, Taken, Tasks


class Receiver:
    """Notes what it is delivered, and answers when it is let."""

    def __init__(self) -> None:
        self.deliveries: list[tuple[int, Sequence[str]]] = []
        self.may_answer = asyncio.Semaphore(0)

    async def deliver(self, first: int, items: Sequence[str]) -> None:
        self.deliveries.append((first, items))
        await self.may_answer.acquire()


async def rest() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_one_delivery_is_under_way_at_a_time_and_what_comes_meanwhile_goes_with_the_next() -> None:
    async def scenario() -> None:
        receiver = Receiver()
        line = Line(Tasks(), receiver.deliver)
        line.send(["a"])
        await rest()
        line.send(["b", "c"])
        line.send(["d"])
        await rest()
        assert receiver.deliveries == [(1, ["a"])]
        receiver.may_answer.release()
        await rest()
        assert receiver.deliveries == [(1, ["a"]), (2, ["b", "c", "d"])]
        receiver.may_answer.release()
        await rest()
        line.send([])
        line.send(["e"])
        await rest()
        assert receiver.deliveries[2:] == [(5, ["e"])], "nothing is no delivery"

    asyncio.run(scenario())


def test_a_line_goes_on_counting_where_another_ended() -> None:
    async def scenario() -> None:
        receiver = Receiver()
        Line(Tasks(), receiver.deliver, delivered=7).send(["h"])
        await rest()
        assert receiver.deliveries == [(8, ["h"])]

    asyncio.run(scenario())


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), max_size=8), st.integers(0, 5))
def test_each_item_is_taken_once_however_often_it_is_delivered(
    deliveries: list[tuple[int, int]], taken_before: int
) -> None:
    """A delivery of so many items comes so many times more than once."""
    taken, news = Taken(taken_before), []
    first = 1
    for size, again in deliveries:
        items = list(range(first, first + size))
        for _ in range(1 + again):
            news += taken.news(first, items)
        first += size
    assert news == list(range(taken_before + 1, first))
    assert taken.count == max(taken_before, first - 1)
