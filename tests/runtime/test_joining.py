"""A Ray that cannot be joined is one sentence, at once."""

import socket
import time
import traceback
from collections.abc import Callable

import pytest
import ray

from gandiva_ray.runtime.joining import join_ray


@pytest.fixture(autouse=True)
def not_joined_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)


def said(join: Callable[[], None], kind: type[Exception]) -> str:
    """The whole of what a person would see."""
    with pytest.raises(kind) as raised:
        join()
    text = "".join(traceback.format_exception(raised.value))
    assert text.count("Traceback") == 1  # no second one, of Ray's
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("address", "kind", "message"),
    [
        ("127.0.0.1:1", ConnectionError, "no Ray cluster answers at '127.0.0.1:1'"),
        ("nohost.invalid:6379", ConnectionError, "no Ray cluster answers at 'nohost.invalid:6379'"),
        ("10.0.0.1", ValueError, "'10.0.0.1' is no address of a Ray cluster"),
        ("127.0.0.1:66666", ValueError, "'127.0.0.1:66666' is no address of a Ray cluster"),
        ("ray://127.0.0.1:10001", ValueError, "Ray Client, which is not supported"),
    ],
)
def test_an_address_that_does_not_work(address: str, kind: type[Exception], message: str) -> None:
    assert message in said(lambda: join_ray(address), kind)


def test_a_stale_ray_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    assert "mend RAY_ADDRESS" in said(lambda: join_ray(None), ConnectionError)


def test_a_host_that_does_not_answer_is_given_up_after_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(address: tuple[str, int], timeout: float) -> None:
        assert timeout <= 5
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", silent)
    started = time.monotonic()
    assert "(timed out)" in said(lambda: join_ray("10.0.0.1:6379"), ConnectionError)
    assert time.monotonic() - started < 1


def test_a_cluster_of_other_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray._private.utils.compute_version_info", lambda: ("2.9.0", "3.12.1"))

    def check(*arguments: object, **options: object) -> None:
        ray._private.utils.check_version_info({"ray_version": "2.60.0", "python_version": "3.11.4"}, "node 10.0.0.1")

    monkeypatch.setattr(ray, "init", check)
    assert said(lambda: join_ray("auto"), RuntimeError) == (
        "the Ray cluster runs Ray 2.60.0 on Python 3.11.4, and this process Ray 2.9.0 on Python 3.12.1: both must be "
        "the same"
    )


def test_auto_without_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*arguments: object, **options: object) -> None:
        raise ConnectionError("Could not find any running Ray instance.\nPlease specify ...")

    monkeypatch.setattr(ray, "init", none)
    assert said(lambda: join_ray("auto"), ConnectionError).startswith("no Ray cluster answers at 'auto': start one")
