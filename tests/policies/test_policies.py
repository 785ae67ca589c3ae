from __future__ import annotations

import pytest

from gandiva_ray.core.plan import Plan
from gandiva_ray.policies import POLICIES, Fifo, Gandiva, make_policy


@pytest.mark.parametrize(("name", "policy"), [("fifo", Fifo()), ("gandiva", Gandiva())])
def test_a_policy_is_made_by_its_name(name, policy):
    assert name in POLICIES
    assert make_policy(name) == policy


def test_a_policy_that_is_given_is_kept():
    policy = Gandiva(assumed_private_bytes=1)
    assert make_policy(policy) is policy


@pytest.mark.parametrize(("name", "near"), [("gandlva", "gandiva"), ("FIFO", "fifo"), ("fifo-2", "fifo")])
def test_an_unknown_name_gets_the_nearest_known_one(name, near):
    with pytest.raises(ValueError, match=f"no policy is called '{name}'; did you mean '{near}'"):
        make_policy(name)


class PlansButIsNoDataclass:
    def plan(self, state):
        return Plan({})


@pytest.mark.parametrize("thing", [Gandiva, 3, None, PlansButIsNoDataclass()])
def test_what_is_no_policy_is_refused(thing):
    with pytest.raises(TypeError, match="a policy is one of fifo, gandiva, or a frozen dataclass with a method plan"):
        make_policy(thing)
