"""Open the CUDA libraries in a GPU image as TensorFlow does, and print the paths as JSON.

Run it with the image's Python: `python - < gpu_image_inside.py`. Each library is opened in a new
process, because an open library is found by every later call. A library that cannot be opened has
the path null.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

# The CUDA libraries of tensorflow[and-cuda] 2.21.
SONAMES = (
    "libcublas.so.12",
    "libcublasLt.so.12",
    "libcudart.so.12",
    "libcudnn.so.9",
    "libcufft.so.11",
    "libcupti.so.12",
    "libcurand.so.10",
    "libcusolver.so.11",
    "libcusparse.so.12",
    "libnccl.so.2",
    "libnvJitLink.so.12",
    "libnvrtc.so.12",
)
# Those that cuDNN opens when it is used, but for libcudnn_engines_runtime_compiled.so.9, which
# requires the functions of a real driver.
OF_CUDNN = (
    "libcudnn_adv.so.9",
    "libcudnn_cnn.so.9",
    "libcudnn_engines_precompiled.so.9",
    "libcudnn_engines_tensor_ir.so.9",
    "libcudnn_ext.so.9",
    "libcudnn_graph.so.9",
    "libcudnn_heuristic.so.9",
    "libcudnn_ops.so.9",
)
# TensorFlow's own functions, by the library that each opens; of tsl::internal::DsoLoader:
# https://github.com/openxla/xla/blob/main/xla/tsl/platform/default/dso_loader.cc
LOADERS = {
    "libcublas.so": "GetCublasDsoHandle",
    "libcublasLt.so": "GetCublasLtDsoHandle",
    "libcudart.so": "GetCudaRuntimeDsoHandle",
    "libcudnn.so": "GetCudnnDsoHandle",
    "libcufft.so": "GetCufftDsoHandle",
    "libcupti.so": "GetCuptiDsoHandle",
    "libcusolver.so": "GetCusolverDsoHandle",
    "libcusparse.so": "GetCusparseDsoHandle",
    "libnccl.so": "GetNcclDsoHandle",
}
DRIVER = ("libcuda.so", "GetCudaDriverDsoHandle")
# Opens all libraries that a GPU requires; if it fails, TensorFlow registers no GPU.
ALL = "MaybeTryDlopenGPULibraries"

BY_NAME = """
import ctypes, sys
ctypes.CDLL(sys.argv[1])
"""
# An absl::Status, or StatusOr, is returned in memory whose address is the first argument; its first
# word is 1 if the status is OK.
BY_TENSORFLOW = """
import ctypes, importlib.util, sys
folder, = importlib.util.find_spec("tensorflow").submodule_search_locations
library = ctypes.CDLL(folder + "/libtensorflow_framework.so.2")
name = sys.argv[1]
function = getattr(library, f"_ZN3tsl8internal9DsoLoader{len(name)}{name}Ev")
function.argtypes, function.restype = [ctypes.c_void_p], None
status = (ctypes.c_uint64 * 8)()
function(status)
sys.exit(status[0] != 1)
"""


def main() -> None:
    """Print the results."""
    import tensorflow as tf

    results = {
        "TensorFlow": tf.__version__,
        "is built with CUDA": tf.test.is_built_with_cuda(),
        "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH"),
        "by name": {name: opened(name, BY_NAME, name) for name in SONAMES},
        "of cuDNN": {name: opened(name, BY_NAME, name) for name in OF_CUDNN},
        "by TensorFlow": {
            name: opened(name, BY_TENSORFLOW, function) for name, function in LOADERS.items()
        },
        "all that a GPU requires": run(BY_TENSORFLOW, ALL).returncode == 0,
        "driver": opened(DRIVER[0], BY_TENSORFLOW, DRIVER[1]),
    }
    print(json.dumps(results))


def opened(name: str, program: str, argument: str) -> str | None:
    """Run a program that opens a library, and return the path that the loader chose."""
    done = run(program, argument)
    tried = [line.partition("trying file=")[2] for line in done.stderr.splitlines()]
    paths = [path for path in tried if path.rpartition("/")[2].startswith(name)]
    return paths[-1] if paths and done.returncode == 0 else None


def run(program: str, argument: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a new process, with what the loader does on standard error."""
    return subprocess.run(
        [sys.executable, "-c", program, argument],
        env=os.environ | {"LD_DEBUG": "libs"},
        capture_output=True,
        text=True,
        check=False,
    )


main()
