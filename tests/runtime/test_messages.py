import asyncio

from gandiva_ray.core.search import TrialReported
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
