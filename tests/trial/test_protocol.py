from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gandiva_ray.trial.protocol import NO_MILESTONE, RUN, SUSPEND, Decoder, create_page, encode, open_page

MESSAGES = st.lists(st.dictionaries(st.text(), st.integers() | st.text()))


@settings(max_examples=30, deadline=None)
@given(MESSAGES, st.integers(1, 9))
def test_messages_arrive_whole_however_the_bytes_do(messages: list[dict[str, Any]], size: int) -> None:
    data = b"".join(map(encode, messages))
    decoder = Decoder()
    arrived = [message for at in range(0, len(data), size) for message in decoder.feed(data[at : at + size])]
    assert arrived == messages


def test_both_ends_see_one_page() -> None:
    page, fd = create_page()
    assert (page.request, page.until, page.boundaries, page.steps) == (RUN, NO_MILESTONE, 0, 0)
    other = open_page(os.getpid(), fd)
    other.request, other.until = SUSPEND, 2**40
    assert (page.request, page.until) == (SUSPEND, 2**40)
    os.close(fd)


@pytest.mark.parametrize("reaped", [True, False])
def test_the_page_of_an_ended_process_is_blank(reaped: bool) -> None:
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        if reaped:
            process.wait()
        page = open_page(process.pid, 3)
    assert (page.request, page.until, page.boundaries, page.steps) == (RUN, NO_MILESTONE, 0, 0)
