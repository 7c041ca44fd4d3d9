"""Jobs of many settings, as data."""

from __future__ import annotations

from dataclasses import replace

from distlaunch.job.model import (
    ChoiceParameter,
    Cluster,
    Image,
    Job,
    Machine,
    Pool,
    RangeParameter,
    Scheduling,
    Tuning,
)

CPU = Machine("n1-standard-4")
GPU = Machine("n1-standard-8", "NVIDIA_TESLA_T4", 2)
REPOSITORY = "us-central1-docker.pkg.dev/my-project/training/digits"
IMAGE = f"{REPOSITORY}:latest"
JOB = Job(
    "digits",
    Cluster(Pool(CPU), Pool(CPU, 2)),
    args=("--epochs=5",),
    env={"COLOUR": "green"},
    bucket="gs://my-bucket",
    image=Image(REPOSITORY),
    labels={"team": "vision"},
    scheduling=Scheduling(timeout=3600),
)
FULL = replace(
    JOB,
    cluster=Cluster(Pool(GPU), Pool(GPU, 3), Pool(CPU, 2), Pool(CPU, 1)),
    service_account="trainer@my-project.iam.gserviceaccount.com",
    network="projects/1/global/networks/default",
    tensorboard="projects/1/locations/us-central1/tensorboards/2",
    scheduling=Scheduling("SPOT", 7200, 600),
)
PARAMETERS = {
    "rate": RangeParameter(0.001, 0.1, scale="log"),
    "layers": RangeParameter(1, 5, is_integer=True),
    "kind": ChoiceParameter(("a", "b: c")),
}
TUNED = replace(JOB, tuning=Tuning("accuracy", "maximize", PARAMETERS, trials=8))
