"""Make the bundled list prices: `python tools/make_list_prices.py initial-prices.json DATE`.

The file is pkg/providers/pricing/initial-prices.json of cloudpilot-ai/karpenter-provider-gcp, which
its maintainers write from Google's Cloud Billing Catalog; DATE is that of its commit. It has prices
of Compute Engine per hour in USD, of whole machines, on demand and Spot. Those of GPUs that are
attached to N1 machines are from catalogs/v8/gcp/vms.csv of skypilot-org/skypilot-catalog, commit
006059e. Run it by hand; what it writes is committed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

JOB = Path(__file__).parent.parent / "distlaunch" / "job" / "catalogue.json"
FILE = Path(__file__).parent.parent / "distlaunch" / "price" / "list_prices.json"
SOURCE = "https://github.com/cloudpilot-ai/karpenter-provider-gcp, skypilot-org/skypilot-catalog"

Prices = dict[str, dict[str, list[float]]]
"""Machine type or accelerator → region → price on demand and price of Spot."""

ATTACHED_GPUS: Prices = {
    "NVIDIA_TESLA_T4": {
        "asia-east1": [0.35, 0.1383],
        "asia-east2": [0.44, 0.2004],
        "asia-northeast1": [0.37, 0.1311],
        "asia-northeast3": [0.37, 0.1539],
        "asia-south1": [0.41, 0.1701],
        "asia-southeast1": [0.37, 0.1645],
        "asia-southeast2": [0.4033, 0.1854],
        "australia-southeast1": [0.44, 0.1746],
        "europe-central2": [0.41, 0.164],
        "europe-west1": [0.35, 0.14],
        "europe-west2": [0.399, 0.1181],
        "europe-west3": [0.41, 0.164],
        "europe-west4": [0.3675, 0.175],
        "me-west1": [0.385, 0.1093],
        "northamerica-northeast1": [0.38538, 0.1868],
        "southamerica-east1": [0.48, 0.2329],
        "us-central1": [0.35, 0.175],
        "us-east1": [0.35, 0.175],
        "us-east4": [0.37, 0.1644],
        "us-west1": [0.35, 0.175],
        "us-west2": [0.42074, 0.164],
        "us-west3": [0.42074, 0.1195],
        "us-west4": [0.37, 0.1258],
    },
    "NVIDIA_TESLA_V100": {
        "asia-east1": [2.48, 0.6356],
        "europe-west4": [2.604, 1.0443],
        "us-central1": [2.48, 1.0885],
        "us-east1": [2.48, 1.0885],
        "us-west1": [2.48, 1.0885],
    },
    "NVIDIA_TESLA_P100": {
        "asia-east1": [1.6, 0.144],
        "australia-southeast1": [1.6, 0.2839],
        "europe-west1": [1.6, 0.2816],
        "europe-west4": [1.533, 0.2341],
        "us-central1": [1.46, 0.7034],
        "us-east1": [1.46, 0.7034],
        "us-west1": [1.46, 0.7034],
    },
    "NVIDIA_TESLA_P4": {
        "asia-southeast1": [0.65, 0.0585],
        "australia-southeast1": [0.65, 0.075],
        "europe-west4": [0.63, 0.132],
        "northamerica-northeast1": [0.65, 0.0738],
        "us-central1": [0.6, 0.2236],
        "us-east4": [0.6, 0.1734],
        "us-west2": [0.72, 0.0794],
    },
}


def main(path: str, date: str) -> None:
    """Write the prices of the machine types and regions that distlaunch knows."""
    prices = json.loads(Path(path).read_bytes())["prices"]
    catalogue = json.loads(JOB.read_bytes())
    machines = {
        name: {
            region: [_rounded(prices[region][kind][name]) for kind in ("on_demand", "spot")]
            for region in catalogue["regions"]
            if name in prices[region]["on_demand"]
        }
        for name in catalogue["machines"]
    }
    lines = [
        f"{json.dumps(name)}: {json.dumps(by_region, separators=(',', ':'))}"
        for name, by_region in {**machines, **ATTACHED_GPUS}.items()
        if by_region
    ]
    head = f'"source": {json.dumps(SOURCE)},\n"date": {json.dumps(date)},\n"prices": {{\n'
    FILE.write_text("{\n" + head + ",\n".join(lines) + "\n}\n}\n", encoding="utf-8")


def _rounded(price: float) -> float:
    return float(f"{price:.6g}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
