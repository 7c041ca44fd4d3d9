"""Cores are shared out evenly, and GPUs in equal numbers, or not at all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distlaunch.job.tasks import Task
from distlaunch.local.host_resources import HostResources, share_out, this_machine

TASKS = st.tuples(st.integers(0, 12), st.integers(0, 3), st.integers(0, 1)).map(
    lambda counts: (
        Task("chief"),
        *(
            Task(kind, index)
            for kind, count in zip(("worker", "ps", "evaluator"), counts, strict=True)
            for index in range(count)
        ),
    )
)
MACHINES = st.builds(
    HostResources,
    st.sets(st.integers(0, 200), min_size=1, max_size=64).map(lambda cores: tuple(sorted(cores))),
    st.integers(0, 16).map(lambda count: tuple(map(str, range(count)))),
)


@given(MACHINES, TASKS)
def test_training_tasks_share_without_overlap(machine, tasks):
    shares = share_out(machine, tasks)
    assert set(shares) == set(tasks)
    training = [shares[task] for task in tasks if task.is_training]
    cores = [core for share in training for core in share.cores or ()]
    gpus = [gpu for share in training for gpu in share.gpus]
    assert tuple(cores) == (machine.cores if len(machine.cores) >= len(training) else ())
    assert tuple(gpus) == machine.gpus[: len(gpus)]
    sizes = [len(share.cores or ()) for share in training]
    assert max(sizes) - min(sizes) <= 1
    assert len({len(share.gpus) for share in training}) == 1
    assert len(machine.gpus) - len(gpus) < len(training)
    assert all(share.threads == max(1, len(share.cores or ())) for share in training)
    others = [shares[task] for task in tasks if not task.is_training]
    assert all(share.cores is None and not share.gpus and share.threads for share in others)


def test_gpus_are_those_of_cuda_visible_devices_up_to_an_invalid_one():
    assert this_machine({"CUDA_VISIBLE_DEVICES": "2,GPU-8f"}).gpus == ("2", "GPU-8f")
    assert this_machine({"CUDA_VISIBLE_DEVICES": ""}).gpus == ()
    assert this_machine({"CUDA_VISIBLE_DEVICES": "0, 2,-1,3"}).gpus == ("0", "2")
    assert HostResources((0, 1)).describe() == "2 cores, no GPU"
    assert HostResources((0,), ("0",)).describe() == "1 core, 1 GPU"
