"""The remedies of Google's reasons for refusing a call, for all that make calls.

The names are those of google/api/error_reason.proto and Cloud Storage's JSON API, the texts those
of the services: of APIs, registries and token servers, and in the logs of jobs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

LOGIN = "gcloud auth application-default login"
CURRENT_ACCOUNT = "user:$(gcloud config get account)"
"""The caller, as a shell expands it, where the credentials do not name one."""
DISABLED, NO_PROJECT = "SERVICE_DISABLED", "CONSUMER_INVALID"

_NAME = r"[a-z]\w*\.[a-z]\w*\.[a-z]\w*\b(?![.@-]\w)"
_PERMISSION = re.compile(
    rf"(?:permissions?:? ['\"]?|required ['\"])({_NAME})|have ({_NAME}) (?:access|permission)",
    re.IGNORECASE,
)


class Remedy(NamedTuple):
    """What fixes a refusal, and Google's name of its reason, empty if it has none."""

    text: str
    code: str


class _Reason(NamedTuple):
    """The texts of a reason, the template of its remedy, and Google's names of the reason."""

    pattern: str
    remedy: str
    remedy_in_job: str = ""  # for a job's program, where it differs
    codes: str = ""


def grant(command: str, member: str, role: str) -> str:
    """Return the remedy for a missing role; `command` is one of gcloud's, with its resource."""
    return f"have an administrator run 'gcloud {command} --member={member} --role={role}'"


def more_quota(project: str) -> str:
    """Return the remedy for a quota that is exceeded."""
    return f"request more at https://console.cloud.google.com/iam-admin/quotas?project={project}"


def more_calls(project: str) -> str:
    """Return the remedy for too many calls in a short time."""
    return f"try again in a minute, or {more_quota(project)}"


_BIND_PROJECT = "projects add-iam-policy-binding {project}"
_BIND_ACCOUNT = "iam service-accounts add-iam-policy-binding {account}"
_BIND_KEY = (
    "kms keys add-iam-policy-binding {key} --keyring={ring} --location={location} --project={owner}"
)
_BIND_REPOSITORY = (
    "artifacts repositories add-iam-policy-binding {repository} --project={owner} "
    "--location={location}"
)
KNOWN_REASONS = (
    _Reason(
        r"not been used in project (?P<project>[\w:.-]*\w)(.*?/apis/api/(?P<service>[\w.]+))?",
        "run 'gcloud services enable {service} --project={project}' and wait a minute",
        codes=f"{DISABLED} accessNotConfigured",
    ),
    _Reason(
        r"billing account .{0,60}\b(disabled|closed|absent)|requires billing to be enabled"
        r"|billing (has not been|is not|must be) enabled|billing (is|to be) disabled",
        "run 'gcloud billing projects link {project} --billing-account=ACCOUNT'",
        codes="BILLING_DISABLED accountDisabled UserProjectAccountProblem",
    ),
    _Reason(
        r"required permission to use project (?P<project>[\w:.-]*\w)|serviceusage\.services\.use\b",
        "run 'gcloud auth application-default set-quota-project PROJECT' with one of yours, or "
        + grant(_BIND_PROJECT, "{member}", "roles/serviceusage.serviceUsageConsumer"),
        codes="USER_PROJECT_DENIED USER_PROJECT_ACCESS_DENIED",
    ),
    _Reason(
        r"(?!)",
        "set the id of a project that these credentials can use (see 'gcloud projects list')",
        codes=f"{NO_PROJECT} RESOURCE_PROJECT_INVALID",
    ),
    _Reason(
        r"(consumer|project)\b.{0,80} has been suspended",
        "an owner of the suspended project can appeal, see "
        "https://cloud.google.com/resource-manager/docs/project-suspension-guidelines",
        codes="CONSUMER_SUSPENDED GCP_SUSPENDED",
    ),
    _Reason(
        r"vpcServiceControlsUniqueIdentifier|prohibited by (the )?organi[sz]ation's policy",
        "send the identifier to the administrators of the organisation's VPC Service Controls "
        "perimeter, who can allow the call: no role does",
        codes="SECURITY_POLICY_VIOLATED vpcServiceControls",
    ),
    _Reason(
        r"denied on '?locations/[\w-]+",
        "choose another location: this one does not exist or the project may not use it, and no "
        "role changes that",
        codes="LOCATION_POLICY_VIOLATED",
    ),
    _Reason(
        r"(?<![\w/.])(custom)?constraints/(?P<constraint>[a-z]+\.\w+)|violates organization policy",
        "have an administrator of the organisation's policies allow it: no role does (see 'gcloud "
        "org-policies describe {constraint} --project={project} --effective')",
        codes="RESOURCE_USAGE_RESTRICTION_VIOLATED LOCATION_ORG_POLICY_VIOLATED "
        "TLS_ORG_POLICY_VIOLATED",
    ),
    _Reason(
        r"insufficient authentication scopes|scope\(s\) are not authorized",
        "run 'gcloud compute instances set-service-account VM --scopes=cloud-platform' for this VM "
        f"while it is stopped, or elsewhere '{LOGIN}': no role helps",
        "set service_account in distlaunch.yaml: Google's default account has no scope for it",
        codes="ACCESS_TOKEN_SCOPE_INSUFFICIENT",
    ),
    _Reason(  # of IAM Service Account Credentials
        r"iam\.serviceAccounts\.get(AccessToken|OpenIdToken)",
        grant(_BIND_ACCOUNT, "{member}", "roles/iam.serviceAccountTokenCreator"),
    ),
    _Reason(  # of Vertex AI, with status 400
        r"permission to act as service.account:? (?P<account>[^\s@]+@[\w.-]*\w)",
        grant(_BIND_ACCOUNT, "{member}", "roles/iam.serviceAccountUser"),
    ),
    _Reason(  # of all services, with status 400 or 403
        r"((?P<agent>service-\d+@[\w.-]*\w).{,60})?cloudkms\.\w+\.useTo\w+(.*?projects/(?P<owner>\S+?)/"
        r"locations/(?P<location>[\w-]+)/keyRings/(?P<ring>[\w-]+)/cryptoKeys/(?P<key>[\w-]+))?",
        grant(_BIND_KEY, "serviceAccount:{agent}", "roles/cloudkms.cryptoKeyEncrypterDecrypter"),
    ),
    _Reason(  # of token servers, for a key
        r"service account( (?P<account>\S+@[\w.-]*\w))? (is|has been) disabled|account_disabled",
        "run 'gcloud iam service-accounts enable {account}', or use another account",
    ),
    _Reason(  # of token servers, and of IAM Service Account Credentials
        r"invalid grant: account not found|gaia id not found( for email (?P<account>\S*\w))?",
        "use another account, or restore {account} if it was deleted less than 30 days ago (see "
        "'gcloud iam service-accounts undelete --help')",
    ),
    _Reason(  # of token servers, by Google Workspace
        r"admin_policy_enforced",
        "have an administrator of the organisation's Google Workspace allow access to Google Cloud",
    ),
    _Reason(  # of Vertex AI, with status 400
        r"service agent '?(?P<agent>service-\d+@gcp-sa-aiplatform[\w.-]*\w)'? (does not have "
        r"permission|should be granted)(.*?projects/(?P<owner>[^\s/]+)/locations/(?P<location>"
        r"[\w-]+)/repositories/(?P<repository>[\w-]+))?",
        "on a project's first job submit again in some minutes, otherwise "
        + grant(_BIND_REPOSITORY, "serviceAccount:{agent}", "roles/artifactregistry.reader"),
    ),
    _Reason(  # of Cloud Build, whose account reads the source and writes the log
        r"could not resolve (storage )?source\b.*?(?P<agent>[^\s@]+@[\w.-]*\w) does not have",
        grant(_BIND_PROJECT, "serviceAccount:{agent}", "roles/storage.objectAdmin"),
    ),
    _Reason(  # of Cloud Build, in new projects
        r"cannot run builds in this region",
        "build the image once in a region of https://cloud.google.com/build/docs/locations"
        "#restricted_regions_for_some_projects with 'distlaunch build --set region=REGION'",
    ),
    _Reason(  # of Artifact Registry, at gcr.io
        r"createOnPush",
        "run 'gcloud artifacts repositories create {host} --repository-format=docker "
        "--location={location} --project={project}', or "
        + grant(_BIND_PROJECT, "{member}", "roles/artifactregistry.createOnPushWriter"),
    ),
    _Reason(
        r"container registry (is deprecated|is shut|has ended)",
        "move its images with 'gcloud artifacts docker upgrade migrate --projects={project}', or "
        "use one in Artifact Registry: REGION-docker.pkg.dev/{project}/REPOSITORY/IMAGE",
    ),
)
_PATTERNS = [
    re.compile("|".join((reason.pattern, *reason.codes.split())), re.IGNORECASE)
    for reason in KNOWN_REASONS
]


def find_remedy(
    message: str, code: str = "", values: Mapping[str, str] | None = None, *, in_job: bool = False
) -> Remedy | None:
    """Return the remedy for a refused call, None if a role is missing or the reason is not known.

    Google's `code` of the reason decides, and otherwise its message. `values` of the call or of
    Google's metadata fill the remedy; what is not known is a word in capitals. `in_job` is whether
    a job's program made the call.
    """
    patterns = zip(_PATTERNS, KNOWN_REASONS, strict=True)
    matches = [(pattern.search(message), reason) for pattern, reason in patterns]
    found = [(match, reason) for match, reason in matches if code in reason.codes.split()]
    found += [(match, reason) for match, reason in matches if match]
    if not found:
        return None
    match, reason = found[0]
    filled = _Values(member="serviceAccount:ACCOUNT_OF_THE_JOB" if in_job else CURRENT_ACCOUNT)
    for source in (values or {}, match.groupdict() if match else {}):
        filled.update({name: value for name, value in source.items() if value})
    remedy = (in_job and reason.remedy_in_job) or reason.remedy
    return Remedy(remedy.format_map(filled), reason.codes.partition(" ")[0])


def permission_in(text: str) -> str:
    """Return the permission that a text of Google's names as missing, empty if there is none."""
    match = _PERMISSION.search(text)
    return (match[1] or match[2]) if match else ""


class _Values(dict[str, str]):
    """The values of a template; a missing one is a word in capitals to replace."""

    def __missing__(self, name: str) -> str:
        return name.upper()
