import asyncio

import pytest

from gandiva_ray.core.search import TrialReported
from gandiva_ray.runtime import messages
from gandiva_ray.runtime.messages import Outbox


def report(step: int) -> TrialReported:
    return TrialReported("00000", step, {"loss": 1.0}, 0.0)


def test_events_are_kept_until_they_are_confirmed() -> None:
    async def scenario() -> None:
        outbox = Outbox()
        outbox.put(report(1))
        outbox.put(report(2))
        first = await outbox.take(0, timeout=0)
        assert [e.step for e in first.events] == [1, 2]
        again = await outbox.take(0, timeout=0)  # the answer was lost on its way
        assert again == first
        outbox.put(report(3))
        rest = await outbox.take(first.last, timeout=0)
        assert [e.step for e in rest.events] == [3]
        assert (await outbox.take(rest.last, timeout=0)).events == ()

    asyncio.run(scenario())


def test_one_made_of_another_s_content_goes_on_as_it() -> None:
    async def scenario() -> None:
        first = Outbox()
        for step in (1, 2, 3):
            first.put(report(step))
        await first.take(1, timeout=0)
        assert first.content == (1, (report(2), report(3)))
        second = Outbox(*first.content)
        assert await second.take(1, timeout=0) == await first.take(1, timeout=0)
        second.put(report(4))
        batch = await second.take(2, timeout=0)
        assert batch == messages.Batch(4, (report(3), report(4)))
        assert (await second.take(1, timeout=0)) == batch, "what is confirmed stays so"

    asyncio.run(scenario())


def test_a_waiting_poll_is_answered_by_what_arrives() -> None:
    async def scenario() -> None:
        outbox = Outbox()
        poll = asyncio.create_task(outbox.take(0, timeout=30))
        await asyncio.sleep(0.01)
        outbox.put(report(1))
        batch = await asyncio.wait_for(poll, 5)
        assert [e.step for e in batch.events] == [1]

    asyncio.run(scenario())


def test_a_poll_with_nothing_to_tell_ends_at_its_timeout() -> None:
    assert asyncio.run(Outbox().take(0, timeout=0.01)).events == ()


def test_news_that_somebody_waits_for_do_not_wait_as_long_as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "_PATIENT", 30)

    async def scenario() -> None:
        outbox = Outbox()
        outbox.put(report(1), urgent=False)
        poll = asyncio.create_task(outbox.take(0, timeout=0))
        await asyncio.sleep(0.01)
        assert not poll.done()
        outbox.put(report(2))
        batch = await asyncio.wait_for(poll, 5)
        assert [e.step for e in batch.events] == [1, 2]
        outbox.put(report(3), urgent=False)
        poll = asyncio.create_task(outbox.take(batch.last, timeout=0))
        await asyncio.sleep(0.05)
        assert not poll.done(), "the hurry is over"
        poll.cancel()

    asyncio.run(scenario())


def test_a_steady_flow_costs_a_call_for_many_and_not_one_each() -> None:
    async def scenario() -> list[int]:
        outbox = Outbox()

        async def flow() -> None:
            for step in range(200):
                outbox.put(report(step), urgent=False)
                await asyncio.sleep(0.001)

        flowing = asyncio.create_task(flow())
        sizes, last = [], 0
        while sum(sizes) < 200:
            batch = await outbox.take(last, timeout=1)
            sizes.append(len(batch.events))
            last = batch.last
        await flowing
        return sizes

    assert len(asyncio.run(scenario())) < 50
