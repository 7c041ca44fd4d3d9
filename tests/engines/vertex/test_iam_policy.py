"""Changes of IAM policies."""

from __future__ import annotations

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.engines.vertex.iam_policy import change_role, has_role
from distlaunch.errors import GoogleError

ROLES, MEMBERS = ("roles/a", "roles/b"), ("user:a", "user:b", "user:c")
CONDITION = {"title": "t", "expression": "true"}
BINDING = st.fixed_dictionaries(
    {"role": st.sampled_from(ROLES), "members": st.lists(st.sampled_from(MEMBERS), min_size=1)},
    optional={"condition": st.just(CONDITION)},
)


class PolicySession:
    """Holds one policy; the first writes fail with some statuses."""

    clock = staticmethod(lambda: 0.0)

    def __init__(self, policy, *statuses):
        self.policy, self.statuses, self.waits = policy, [*statuses], []
        self.sleep = self.waits.append

    def call(self, method, service, path, *, params=None, body=None):
        if body is None or "policy" not in body:
            return deepcopy(self.policy)
        if self.statuses:
            raise GoogleError("no", status=self.statuses.pop(0))
        self.policy = body["policy"]
        return {}


def triples(policy):
    """Return roles, members and conditions."""
    return {
        (each["role"], member, "condition" in each)
        for each in policy.get("bindings", ())
        for member in each["members"]
    }


@given(bindings=st.lists(BINDING), is_granted=st.booleans())
def test_only_the_role_of_the_member_changes(bindings, is_granted):
    policy = {"bindings": bindings, "etag": "e", "version": 3}
    session = PolicySession(deepcopy(policy))
    change = ("iam", "p", "roles/a", "user:a")
    change_role(session, *change, is_granted=is_granted)
    own = {("roles/a", "user:a", False)}
    assert triples(session.policy) == (triples(policy) - own) | (own if is_granted else set())
    assert (session.policy["etag"], session.policy["version"]) == ("e", 3)
    assert has_role(session.policy, "roles/a", "user:a") == is_granted
    before = session.policy
    change_role(session, *change, is_granted=is_granted)
    assert session.policy is before  # nothing is written


def test_conflicts_are_retried_and_other_refusals_are_not():
    session = PolicySession({"etag": "e"}, 409, 412)
    change_role(session, "artifactregistry", "p", "roles/a", "user:a", is_granted=True)
    assert (triples(session.policy), len(session.waits)) == ({("roles/a", "user:a", False)}, 2)
    with pytest.raises(GoogleError):
        change_role(PolicySession({}, 403), "iam", "p", "roles/a", "user:a", is_granted=True)
