"""Values of variables are left out of records, and secrets of what is shown."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlaunch.redaction import HIDDEN, REDACTED, hide_secrets, redact, redact_words

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
    sent = request(A="b", **{name: "abc"})
    assert hide_secrets(sent) == (request(A="b", **{name: HIDDEN}), (name,))
    assert sent == request(A="b", **{name: "abc"})  # not changed


def test_a_value_is_hidden_by_its_content_and_others_are_shown():
    for value in (
        "postgresql://me:pass@host/db",
        "ghp_" + "0aB1xY" * 6,
        "xoxb-1234567890-abcdefghijk",
    ):
        assert hide_secrets(request(SETTING=value)) == (request(SETTING=HIDDEN), ("SETTING",))
    for name in ("MAX_TOKENS", "KEYBOARD", "MONKEY", "AUTHOR", "COLOUR"):
        shown = request(**{name: "https://host/path"})
        assert hide_secrets(shown) == (shown, ())
    assert hide_secrets({"env": "none", "x": [{"env": [{"name": "TOKEN"}, 1]}]})[1] == ()


FORMS = (
    "env.A={}",
    "env={{A: {}}}",
    "vertex.jobSpec.workerPoolSpecs[0].containerSpec.env[0].value={}",
    "cluster={{chief: {{machine: m, env: {{A: {}}}}}}}",
    " env.A = {}",
    '"env".A={}',
    "'env'.A={}",
    '"env"={{A: {}}}',
    'cluster={{chief: {{"\\x65nv": {{A: {}}}}}}}',
)


@given(st.sampled_from(FORMS), st.text(min_size=8), st.booleans())
def test_no_form_of_set_records_a_value_of_a_variable(form, secret, is_one_word):
    value = form.format(f"<{secret}>")
    words = [f"--set={value}"] if is_one_word else ["--set", value]
    redacted = redact_words(["local", *words, "--", "--epochs=3"])
    assert f"<{secret}>" not in "".join(redacted)
    assert redacted[-1] == "--epochs=3"
    assert redacted[1].startswith("--set")


WORDS = ["submit", "--set=cluster.workers.count=3", "--set", "args=[--envelope=1]", "--", "a=b"]


def test_other_words_are_recorded():
    assert redact_words(WORDS) == WORDS
    assert redact_words(["--notify", "https://host/secret"]) == ["--notify", REDACTED]
    assert redact_words(["--notify=https://host/secret"]) == [f"--notify={REDACTED}"]


def test_variables_of_a_job_are_redacted_wherever_they_are():
    pool = {"containerSpec": {"env": [{"name": "A", "value": "sesame"}]}}
    job = {"env": {"A": "sesame"}, "vertex": {"jobSpec": {"workerPoolSpecs": [pool]}}}
    assert "sesame" not in json.dumps(redact(job))
    assert redact(job)["env"] == {"A": REDACTED}
