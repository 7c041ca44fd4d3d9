"""Price lists as Google's Cloud Billing Catalog has them, for tests.

The first is what a user of a3-highgpu-8g in us-central1 published of two bills in 2025-08.
"""

from __future__ import annotations

from fake_google import sku

VERTEX_AI, COMPUTE_ENGINE = "C7E2-9256-1C43", "6F81-5844-456A"
REGION = "us-central1"


TRAINING = "Vertex AI: Training/Pipelines "
BILLED = {
    VERTEX_AI: [
        sku(f"{TRAINING}on NVIDIA H100 80GB in Iowa", "11.2660332"),
        sku(f"{TRAINING}on A3 Instance Core in Iowa", "0.0293227"),
        sku(f"{TRAINING}on A3 Instance RAM in Iowa", "0.0025534", "GiBy.h"),
        sku(f"{TRAINING}on SSD backed PD Capacity", "0.1955", "GiBy.mo"),
        sku(f"{TRAINING}management fee on NVIDIA H100 80GB in Iowa", "1.4694826"),
        sku(f"{TRAINING}management fee on A3 Instance Core in Iowa", "0.0038247"),
        sku(f"{TRAINING}management fee on A3 Instance RAM in Iowa", "0.0003331", "GiBy.h"),
    ],
    COMPUTE_ENGINE: [
        sku(
            "Nvidia H100 80GB GPU attached to DWS Defined Duration VMs running in Americas",
            "4.200761",
        ),
        sku("DWS Defined Duration A3 Core running in Americas", "0.010934"),
        sku("DWS Defined Duration A3 Ram running in Americas", "0.000952", "GiBy.h"),
        sku("DWS Defined Duration SSD backed Local Storage running in Americas", "0.08", "GiBy.mo"),
    ],
}
DISTRACTORS = {
    VERTEX_AI: [
        sku("Vertex AI: Online/Batch Prediction Nvidia H100 80gb GPU running in Iowa", "99"),
        sku(f"{TRAINING}on A3 Instance Core in Belgium", "99", regions=["europe-west1"]),
        sku(f"{TRAINING}on NVIDIA H100 80GB Mega in Iowa", "99"),
        sku(f"{TRAINING}on A3 Custom Instance Core in Iowa", "99"),
    ],
    COMPUTE_ENGINE: [
        sku("A3 Instance Core running in Americas", "99"),
        sku("Commitment v1: Nvidia H100 80GB GPU running in Americas for 1 Year", "99"),
        sku("Spot Preemptible A3 Instance Core running in Americas", "99"),
        sku("Reserved Nvidia H100 80GB GPU in Iowa", "0"),
        sku("DWS Defined Duration A3Plus Core running in Americas", "99"),
    ],
}
