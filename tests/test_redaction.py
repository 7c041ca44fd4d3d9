"""Variables of a request that look like secrets are hidden."""

from __future__ import annotations

import pytest

from distlaunch.redaction import HIDDEN, hide_secrets

NAMES = """
    WANDB_API_KEY token DB_PASSWORD MYSQL_PASSWD SECRET2 ApiKey AUTH_HEADER credential X-Auth
    GOOGLE_APPLICATION_CREDENTIALS
"""


def request(**env):
    variables = [{"name": name, "value": value} for name, value in env.items()]
    pools = [{"containerSpec": {"args": ["a"], "env": variables}}, {}]
    return {"jobSpec": {"workerPoolSpecs": pools}}


@pytest.mark.parametrize("name", NAMES.split())
def test_a_value_is_hidden_by_its_name(name):
    assert hide_secrets(request(A="b", **{name: "abc"})) == (
        request(A="b", **{name: HIDDEN}),
        (name,),
    )


@pytest.mark.parametrize(
    "value", ["postgresql://me:pass@host/db", "ghp_" + "0aB1xY" * 6, "xoxb-1234567890-abcdefghijk"]
)
def test_a_value_is_hidden_by_its_content(value):
    assert hide_secrets(request(SETTING=value)) == (request(SETTING=HIDDEN), ("SETTING",))


@pytest.mark.parametrize("name", ["MAX_TOKENS", "KEYBOARD", "MONKEY", "AUTHOR", "COLOUR"])
def test_other_values_are_shown(name):
    shown = request(**{name: "https://host/path"})
    assert hide_secrets(shown) == (shown, ())


def test_request_is_not_changed():
    variables = {"TOKEN": "abc", "COLOUR": "green"}
    sent = request(**variables)
    hide_secrets(sent)
    assert sent == request(**variables)
    assert hide_secrets({"env": "none", "x": [{"env": [{"name": "TOKEN"}, 1]}]})[1] == ()
