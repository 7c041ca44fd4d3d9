"""Tokens for calls to Google: the requests to token servers, and their errors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from google.auth.transport.requests import Request

from distlaunch.engines.vertex.api_errors import error_object, proxy_error, root_cause
from distlaunch.engines.vertex.auth import federated_member, login_remedy
from distlaunch.errors import SILENT, Diagnostic, GoogleError, RetryableError, causes_of
from distlaunch.refusals import find_remedy

if TYPE_CHECKING:
    from google.auth.credentials import Credentials

TIMEOUT = 8.0  # seconds; a token server responds at once, or a firewall drops the request

_CLOCK = re.compile(r"short-lived token|\biat\b|used too early|issued in the future", re.IGNORECASE)


class TokenRequest(Request):
    """Sends a request to a token server, with a shorter timeout than google-auth's of 120 s."""

    def __call__(self, *args: Any, timeout: Any = None, **options: Any) -> Any:
        is_shorter = isinstance(timeout, (int, float)) and timeout < TIMEOUT
        options["timeout"] = timeout if is_shorter else TIMEOUT
        return super().__call__(*args, **options)  # type: ignore[no-untyped-call]


def refresh(credentials: Credentials) -> None:
    """Get a token, or raise RetryableError without a response, and GoogleError if it is refused."""
    from google.auth.exceptions import GoogleAuthError

    try:
        credentials.refresh(TokenRequest())  # type: ignore[no-untyped-call]
    except GoogleAuthError as error:
        raise token_error(error, credentials) from error


def token_error(error: Exception, credentials: Credentials) -> GoogleError:
    """Return the error for a token that was not received."""
    from google.auth.exceptions import TransportError
    from requests.exceptions import Timeout

    if any(isinstance(cause, Timeout) for cause in causes_of(error)):
        return RetryableError(
            f"the server of Google's tokens does not respond within {TIMEOUT:.0f} s",
            remedy="check the network, its proxy and its firewall",
            reason=SILENT,
            may_have_been_processed=False,
        )
    body = str(error.args[-1] if error.args else "").encode()
    page = proxy_error("the server of Google's tokens answers", body)
    if isinstance(error, TransportError) or getattr(error, "retryable", False):
        page = page or Diagnostic(f"cannot get a token ({root_cause(error)})")
        return RetryableError(
            page.what, remedy=page.remedy, reason="UNREACHABLE", may_have_been_processed=False
        )
    # The API that impersonates accounts responds as all of Google's, token servers by OAuth.
    message = str(error_object(body).get("message") or root_cause(error))
    reason = " ".join(message.split()).rstrip(".").removesuffix(": None")
    account = getattr(credentials, "service_account_email", None)
    values = {"service": "iamcredentials.googleapis.com", "account": account or ""}
    known = find_remedy(reason, values=values | {"member": federated_member() or ""})
    clock = "set this machine's clock, such as by 'sudo timedatectl set-ntp true'"
    remedy = known.text if known else clock if _CLOCK.search(reason) else login_remedy()
    what = f"Google does not accept the credentials ({reason})"
    page = page or Diagnostic(what, remedy)
    return GoogleError(page.what, remedy=page.remedy, status=401, reason="UNAUTHENTICATED")
