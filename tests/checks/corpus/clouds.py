"""Jobs that are right, and lack something in the cloud."""

from __future__ import annotations

from .cases import REGISTRY, SPOT, WITH_GPUS, Broken

ARTIFACTS = "us-central1-docker.pkg.dev/demo-project/training/digits"
ACCOUNT = "trainer@demo-project.iam.gserviceaccount.com"
IN_ARTIFACTS = f"image: {{repository: {ARTIFACTS}}}"

UNREACHABLE = frozenset({"registry-unreachable"})  # there is no network

CLOUDS = {
    "a call that is not answered": Broken(
        code="unanswered",
        severity="warning",
        remedy="",
        where="quota",
        google={"failures": {"quotas": 503}},
        job=WITH_GPUS,
    ),
    "a project that may not be looked at": Broken(
        code="unanswered", severity="warning", remedy="", google={"failures": {"billing": 403}}
    ),
    "Vertex AI is not enabled": Broken(
        code="api-disabled",
        remedy="gcloud services enable aiplatform.googleapis.com",
        where="aiplatform.googleapis.com",
        google={"without": ["aiplatform.googleapis.com"]},
    ),
    "Cloud Logging is not enabled": Broken(
        code="api-disabled",
        remedy="gcloud services enable logging.googleapis.com",
        where="logging.googleapis.com",
        google={"without": ["logging.googleapis.com"]},
    ),
    "nobody pays": Broken(
        code="billing-off",
        remedy="gcloud billing projects link demo-project",
        where="project demo-project",
        google={"without": ["billing"]},
    ),
    "no such project": Broken(
        code="project-missing",
        remedy="gcloud projects list",
        where="project demo-project",
        google={"without": ["project"]},
    ),
    "no right to make a job": Broken(
        code="permission-missing",
        remedy="roles/aiplatform.user",
        google={"without": ["aiplatform.customJobs.create"]},
    ),
    "no such bucket": Broken(
        code="bucket-missing",
        remedy="gcloud storage buckets create gs://demo-bucket ",
        where="gs://demo-bucket",
        google={"without": ["bucket"]},
    ),
    "a bucket of a continent": Broken(
        code="bucket-not-regional",
        remedy="--location=us-central1",
        where="gs://demo-bucket",
        google={"bucket": {"location": "EU", "locationType": "multi-region"}},
    ),
    "a bucket across the sea": Broken(
        code="bucket-elsewhere",
        remedy="us-central1",
        where="gs://demo-bucket",
        google={"bucket": {"location": "EUROPE-WEST1"}},
    ),
    "a bucket that one may only read": Broken(
        code="bucket-denied",
        remedy="roles/storage.objectAdmin",
        where="gs://demo-bucket",
        google={"without": ["storage.objects.create"]},
    ),
    "no such repository": Broken(
        code="repository-missing",
        remedy="gcloud artifacts repositories create training",
        google={"without": ["repository"]},
        job=IN_ARTIFACTS,
        also=UNREACHABLE,
    ),
    "a repository of packages": Broken(
        code="repository-format",
        remedy="--repository-format=docker",
        google={"repository_format": "PYTHON"},
        job=IN_ARTIFACTS,
        also=UNREACHABLE,
    ),
    "a repository across the sea": Broken(
        code="repository-far",
        severity="warning",
        remedy="us-central1",
        google={},
        job="image: {repository: europe-west1-docker.pkg.dev/demo-project/training/digits}",
        also=UNREACHABLE,
    ),
    "a repository that one may only read": Broken(
        code="repository-denied",
        remedy="roles/artifactregistry.writer",
        google={"without": ["artifactregistry.repositories.uploadArtifacts"]},
        job=IN_ARTIFACTS,
        also=UNREACHABLE,
    ),
    "an image that Vertex AI may not pull": Broken(
        code="agent-cannot-pull",
        severity="warning",
        remedy="roles/artifactregistry.reader",
        google={"without": ["agent"]},
        job=IN_ARTIFACTS,
        also=UNREACHABLE,
    ),
    "no such account": Broken(
        code="account-missing",
        remedy="gcloud iam service-accounts create trainer",
        google={"without": ["account"]},
        job=f"service_account: {ACCOUNT}",
    ),
    "an account that one may not act as": Broken(
        code="account-denied",
        remedy="roles/iam.serviceAccountUser",
        google={"without": ["iam.serviceAccounts.actAs"]},
        job=f"service_account: {ACCOUNT}",
    ),
    "a quota of nothing": Broken(
        code="quota-too-low",
        remedy="https://console.cloud.google.com/iam-admin/quotas?project=demo-project",
        where="custom_model_training_nvidia_t4_gpus",
        google={"limits": {"nvidia_t4_gpus": 0}},
        job=WITH_GPUS,
    ),
    "SPOT, and the quota is for STANDARD": Broken(
        code="quota-too-low",
        remedy="https://console.cloud.google.com/iam-admin/quotas?project=demo-project",
        where="custom_model_training_preemptible_nvidia_t4_gpus",
        google={"limits": {"preemptible_nvidia_t4_gpus": 1}},
        job=f"{SPOT}\nargs: [--epochs=8, --checkpoint-every=100]",
    ),
    "a quota of CPUs": Broken(
        code="quota-too-low",
        remedy="https://console.cloud.google.com/iam-admin/quotas?project=demo-project",
        where="custom_model_training_cpus",
        google={"limits": {"cpus": 16}},
    ),
    "an image that is not there": Broken(
        code="image-missing",
        remedy="",
        where="/digits:1",
        google={},
        job=f"image: {{uri: '{REGISTRY}/digits:1'}}",
    ),
    "an image of a Mac": Broken(
        code="image-architecture",
        remedy="linux/amd64",
        where="/arm:1",
        google={},
        job=f"image: {{uri: '{REGISTRY}/arm:1'}}",
    ),
}
