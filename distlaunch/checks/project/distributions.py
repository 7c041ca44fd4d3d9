"""Which distribution of PyPI brings which module, and what it brings along.

What each one requires was read from the metadata of its releases (in November 2026, for Python
3.12), together with what older ones required: a module that none of them ever brought is missing
for sure. Extras are left out, but for those of TensorFlow.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping  # noqa: TC003 - of the constants
from functools import cache
from typing import Final

PROVIDERS: Final[Mapping[str, tuple[str, ...]]] = {
    "absl": ("absl-py",),
    "attr": ("attrs",),
    "bs4": ("beautifulsoup4",),
    "clang": ("libclang",),
    "cv2": (
        "opencv-python",
        "opencv-python-headless",
        "opencv-contrib-python",
        "opencv-contrib-python-headless",
    ),
    "dateutil": ("python-dateutil",),
    "distutils": ("setuptools",),
    "dotenv": ("python-dotenv",),
    "fitz": ("pymupdf",),
    "git": ("gitpython",),
    "google.api_core": ("google-api-core",),
    "google.auth": ("google-auth",),
    "google.cloud.secretmanager": ("google-cloud-secret-manager",),
    "google.cloud": ("google-cloud-core", "google-cloud-storage", "google-cloud-aiplatform"),
    "google.genai": ("google-genai",),
    "google.oauth2": ("google-auth",),
    "google.protobuf": ("protobuf",),
    "google.rpc": ("googleapis-common-protos",),
    "googleapiclient": ("google-api-python-client",),
    "grpc": ("grpcio",),
    "grpc_status": ("grpcio-status",),
    "hypertune": ("cloudml-hypertune",),
    "jose": ("python-jose",),
    "jwt": ("pyjwt",),
    "keras_tuner": ("keras-tuner",),
    "markdown_it": ("markdown-it-py",),
    "mpl_toolkits": ("matplotlib",),
    "OpenSSL": ("pyopenssl",),
    "opentelemetry": ("opentelemetry-api",),
    "pasta": ("google-pasta",),
    "PIL": ("pillow",),
    "pkg_resources": ("setuptools",),
    "proto": ("proto-plus",),
    "psycopg2": ("psycopg2-binary", "psycopg2"),
    "pylab": ("matplotlib",),
    "serial": ("pyserial",),
    "skimage": ("scikit-image",),
    "sklearn": ("scikit-learn",),
    "slugify": ("python-slugify",),
    "tensorflow": (
        "tensorflow",
        "tensorflow-cpu",
        "tensorflow-tpu",
        "tf-nightly",
        "tf-nightly-cpu",
        "intel-tensorflow",
    ),
    "tensorflow_text": ("tensorflow-text",),
    "tree": ("dm-tree",),
    "vertexai": ("google-cloud-aiplatform",),
    "vertex_ray": ("google-cloud-aiplatform",),
    "yaml": ("pyyaml",),
    "zmq": ("pyzmq",),
}
"""By import name, where the distribution is not called so."""

_TENSORFLOW: Final = (
    "absl-py astunparse flatbuffers gast google-pasta grpcio h5py keras libclang ml-dtypes numpy "
    "opt-einsum packaging protobuf requests setuptools six termcolor typing-extensions wheel wrapt "
    "tensorboard tensorflow-estimator tensorflow-io-gcs-filesystem"
)
_BRINGS: Final[Mapping[str, str]] = {
    "absl-py": "",
    "astunparse": "six wheel",
    "attrs": "",
    "beautifulsoup4": "soupsieve typing-extensions",
    "cachetools": "",
    "certifi": "",
    "cffi": "pycparser",
    "charset-normalizer": "",
    "click": "",
    "cloudml-hypertune": "",
    "cloudpickle": "",
    "contourpy": "numpy",
    "cryptography": "cffi typing-extensions",
    "cycler": "",
    "decorator": "",
    "dm-tree": "absl-py attrs numpy wrapt",
    "einops": "",
    "etils": "",
    "flatbuffers": "",
    "fonttools": "",
    "fsspec": "",
    "gast": "",
    "google-api-core": "google-auth googleapis-common-protos opentelemetry-api proto-plus protobuf "
    "requests grpcio grpcio-status",
    "google-auth": "cachetools cryptography pyasn1 pyasn1-modules rsa six",
    "google-auth-oauthlib": "google-auth requests-oauthlib",
    "google-cloud-bigquery": "google-api-core google-auth google-cloud-core "
    "google-resumable-media packaging python-dateutil requests grpcio proto-plus protobuf",
    "google-cloud-core": "google-api-core google-auth",
    "google-cloud-secret-manager": "google-api-core google-auth grpc-google-iam-v1 grpcio "
    "proto-plus protobuf",
    "google-cloud-storage": "google-api-core google-auth google-cloud-core google-crc32c "
    "google-resumable-media requests protobuf six",
    "google-crc32c": "",
    "google-pasta": "six",
    "google-resumable-media": "google-crc32c six",
    "googleapis-common-protos": "protobuf",
    "grpc-google-iam-v1": "googleapis-common-protos grpcio protobuf",
    "grpcio": "six typing-extensions",
    "grpcio-status": "googleapis-common-protos grpcio protobuf",
    "h5py": "numpy six",
    "idna": "",
    "imageio": "numpy pillow",
    "jinja2": "markupsafe",
    "joblib": "cloudpickle",
    "keras": "absl-py h5py ml-dtypes namex numpy optree packaging rich dm-tree",
    "keras-tuner": "grpcio keras kt-legacy packaging protobuf requests tensorflow",
    "kiwisolver": "",
    "kt-legacy": "",
    "lazy-loader": "packaging",
    "libclang": "",
    "llvmlite": "",
    "markdown": "importlib-metadata",
    "markdown-it-py": "mdurl",
    "markupsafe": "",
    "matplotlib": "contourpy cycler fonttools kiwisolver numpy packaging pillow pyparsing "
    "python-dateutil six",
    "mdurl": "",
    "ml-dtypes": "numpy",
    "mpmath": "",
    "namex": "",
    "narwhals": "",
    "networkx": "decorator",
    "numba": "llvmlite numpy setuptools",
    "numpy": "",
    "oauthlib": "",
    "opencv-contrib-python": "numpy",
    "opencv-contrib-python-headless": "numpy",
    "opencv-python": "numpy",
    "opencv-python-headless": "numpy",
    "opentelemetry-api": "importlib-metadata typing-extensions deprecated",
    "opt-einsum": "numpy",
    "optree": "typing-extensions",
    "packaging": "pyparsing six",
    "pandas": "numpy python-dateutil pytz six tzdata",
    "pillow": "",
    "proto-plus": "protobuf",
    "protobuf": "six setuptools",
    "psutil": "",
    "pyarrow": "numpy",
    "pyasn1": "",
    "pyasn1-modules": "pyasn1",
    "pycparser": "",
    "pygments": "",
    "pyparsing": "",
    "python-dateutil": "six tzdata",
    "python-dotenv": "",
    "pytz": "",
    "pyyaml": "",
    "regex": "",
    "requests": "certifi charset-normalizer chardet idna urllib3",
    "requests-oauthlib": "oauthlib requests",
    "rich": "markdown-it-py pygments commonmark",
    "rsa": "pyasn1",
    "scikit-image": "imageio lazy-loader networkx numpy packaging pillow scipy tifffile "
    "pywavelets matplotlib",
    "scikit-learn": "joblib narwhals numpy scipy threadpoolctl",
    "scipy": "numpy",
    "seaborn": "matplotlib numpy pandas scipy",
    "setuptools": "",
    "simplejson": "",
    "six": "",
    "soupsieve": "",
    "sympy": "mpmath",
    "tabulate": "",
    "tensorboard": "absl-py grpcio markdown numpy packaging pillow protobuf setuptools six "
    "tensorboard-data-server tensorboard-plugin-wit werkzeug google-auth google-auth-oauthlib "
    "requests wheel",
    "tensorboard-data-server": "",
    "tensorflow": _TENSORFLOW,
    "tensorflow-cpu": _TENSORFLOW,
    "tensorflow-hub": "numpy protobuf tf-keras",
    "termcolor": "",
    "tf-keras": "tensorflow",
    "threadpoolctl": "",
    "tifffile": "numpy",
    "toml": "",
    "tqdm": "",
    "typing-extensions": "",
    "tzdata": "",
    "urllib3": "",
    "werkzeug": "markupsafe",
    "wheel": "packaging",
    "wrapt": "",
    "xgboost": "numpy scipy",
    "xxhash": "",
}
"""By distribution, what it requires itself or once did."""

_ADDED = {(3, 11): {"tomllib"}}
_REMOVED = {
    (3, 12): {"asynchat", "asyncore", "distutils", "imp", "smtpd"},
    (3, 13): {
        *("aifc", "audioop", "cgi", "cgitb", "chunk", "crypt", "imghdr", "lib2to3", "mailcap"),
        *("msilib", "nis", "nntplib", "ossaudiodev", "pipes", "sndhdr", "spwd", "sunau"),
        *("telnetlib", "uu", "xdrlib"),
    },
}
_SEPARATORS = re.compile(r"[-_.]+")
_OF_GOOGLE_CLOUD = re.compile(r"google\.cloud\.[a-z0-9_]+")
_API_VERSION = re.compile(r"_v[0-9][a-z0-9]*$")


def canonical(name: str) -> str:
    """Return the name by which PyPI knows a distribution."""
    return _SEPARATORS.sub("-", name).lower()


def providers(module: str) -> tuple[str, ...]:
    """Return the distributions that may bring a module, the likeliest first."""
    parts = [_API_VERSION.sub("", part) for part in module.split(".")]
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        if name in PROVIDERS:
            return PROVIDERS[name]
        if _OF_GOOGLE_CLOUD.fullmatch(name):
            return (canonical(name),)
    return (canonical(parts[0]),)


def closure(names: Iterable[str]) -> tuple[frozenset[str], bool]:
    """Return what distributions bring with all that they require, and whether that is sure."""
    return _closure(frozenset(names))


@cache
def _closure(names: frozenset[str]) -> tuple[frozenset[str], bool]:
    found: set[str] = set()
    pending, all_known = list(names), True
    while pending:
        name = pending.pop()
        if name in found:
            continue
        found.add(name)
        all_known &= name in _BRINGS or name in _GONE
        pending += _BRINGS.get(name, "").split()
    return frozenset(found), all_known


# What only older releases required, which is not asked any further.
_GONE: Final = (
    *("chardet", "commonmark", "deprecated", "importlib-metadata", "pywavelets"),
    *("tensorboard-plugin-wit", "tensorflow-estimator", "tensorflow-io-gcs-filesystem"),
)


def is_standard(module: str, python: tuple[int, int] | None) -> bool:
    """Whether a module comes with Python itself, with any version of it where it is not known."""
    top = module.partition(".")[0]
    since = next((version for version, names in _ADDED.items() if top in names), None)
    until = removed_in(top)
    if since is None and until is None:
        return top in sys.stdlib_module_names or top == "__main__"
    return python is None or ((since or python) <= python < (until or (99, 0)))


def removed_in(module: str) -> tuple[int, int] | None:
    """Return the version of Python that a module of its library is gone from, None for none."""
    return next((version for version, names in _REMOVED.items() if module in names), None)
