from pathlib import Path

import pytest

from distlaunch.image.engine import pip_settings as settings
from distlaunch.image.engine.pip_settings import PipSettings, pip_files

INDEX = "https://ann:s3cret@index.example.com/simple"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    """A home in which pip is set to nothing."""
    for name in ("INDEX_URL", "EXTRA_INDEX_URL", "FIND_LINKS", "TRUSTED_HOST", "PROXY", "CERT"):
        monkeypatch.delenv(f"PIP_{name}", raising=False)
    monkeypatch.delenv("PIP_CLIENT_CERT", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    return tmp_path


@pytest.fixture
def pip_settings(home):
    """Read what pip is set to by the variables and by one file, whatever this machine has."""

    def read(*requirements: str) -> PipSettings:
        return settings.pip_settings(requirements, files=[home / "pip.conf"])

    return read


def write(home: Path, section: str = "global", **settings: str) -> None:
    lines = [f"{name.replace('_', '-')} = {value}" for name, value in settings.items()]
    (home / "pip.conf").write_text("\n".join([f"[{section}]", *lines]))


def test_settings_of_no_index_are_none(pip_settings):
    assert not pip_settings("six==1.16.0")


def test_an_index_in_pips_configuration_is_told(home, pip_settings):
    write(home, index_url=INDEX, trusted_host="index.example.com")
    assert pip_settings().variables == {
        "PIP_INDEX_URL": INDEX,
        "PIP_TRUSTED_HOST": "index.example.com",
    }


def test_a_variable_wins_over_pips_configuration(home, monkeypatch, pip_settings):
    write(home, index_url="https://other.example.com/simple")
    monkeypatch.setenv("PIP_INDEX_URL", INDEX)
    assert pip_settings().variables["PIP_INDEX_URL"] == INDEX


def test_what_is_said_of_install_wins_over_what_is_said_of_all(home, pip_settings):
    (home / "pip.conf").write_text(f"[install]\nindex_url={INDEX}\n[global]\nindex-url=http://x/\n")
    assert pip_settings().variables["PIP_INDEX_URL"] == INDEX


def test_indexes_in_files_of_this_machine_are_left_out(home, pip_settings):
    write(home, extra_index_url=f"file:///opt/pypi\n  {INDEX}\n  /opt/other", find_links="/opt")
    assert pip_settings().variables == {"PIP_EXTRA_INDEX_URL": INDEX}


def test_certificates_go_along(home, pip_settings):
    (home / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    write(home, cert=str(home / "ca.pem"))
    found = pip_settings()
    assert found.files == {"ca.pem": "-----BEGIN CERTIFICATE-----\n"}
    assert found.variables == {"PIP_CERT": "/dev/shm/ca.pem"}


def test_of_netrc_only_what_belongs_to_an_index_goes_along(home, pip_settings):
    (home / "netrc").write_text(
        "machine index.example.com login ann password s3cret\n"
        "machine bank.example.com login ann password other\n"
    )
    write(home, index_url="https://index.example.com/simple")
    found = pip_settings()
    assert found.files == {"netrc": "machine index.example.com login ann password s3cret\n"}
    assert found.variables["NETRC"] == "/dev/shm/netrc"


def test_an_index_in_the_requirements_has_its_login_too(home, pip_settings):
    (home / "netrc").write_text("machine index.example.com login ann password s3cret\n")
    found = pip_settings("--index-url https://index.example.com/simple\nsix")
    assert found.files == {"netrc": "machine index.example.com login ann password s3cret\n"}


def test_a_login_in_a_url_needs_none_of_netrc(home, pip_settings):
    (home / "netrc").write_text("machine index.example.com login bob password other\n")
    write(home, index_url=INDEX)
    assert not pip_settings().files


def test_only_variables_that_requirements_name_go_along(home, monkeypatch, pip_settings):
    monkeypatch.setenv("TOKEN", "s3cret")
    monkeypatch.setenv("OTHER", "x")
    found = pip_settings("--index-url https://ann:${TOKEN}@index.example.com/simple ${MISSING}")
    assert found.variables == {"TOKEN": "s3cret"}


@pytest.mark.parametrize("content", [b"no section", b"[global]\nindex-url\n", b"\xff\xfe", b""])
def test_a_configuration_that_pip_could_not_read_says_nothing(content, home, pip_settings):
    (home / "pip.conf").write_bytes(content)
    assert not pip_settings()


def test_what_is_secret_is_not_shown(home, pip_settings):
    write(home, index_url=INDEX)
    assert "s3cret" not in repr(pip_settings())


def test_no_variable_is_longer_than_the_system_takes(home, pip_settings):
    text = "-----BEGIN CERTIFICATE-----\n" * 10_000
    (home / "ca.pem").write_text(text)
    write(home, cert=str(home / "ca.pem"))
    environment = pip_settings().environment()
    pieces = [value for name, value in environment.items() if name.startswith("DL")]
    assert "".join(pieces) == text
    assert max(map(len, pieces)) < 128 * 1024


def test_files_for_buildkit_are_those_that_are_there(home):
    assert "netrc" not in pip_files()
    (home / "netrc").touch()
    write(home)
    assert pip_files() == {"pip.conf": home / "pip.conf", "netrc": home / "netrc"}


def test_what_pip_does_not_read_is_not_read(monkeypatch, home):
    write(home, index_url=INDEX)
    assert settings.pip_settings().variables["PIP_INDEX_URL"] == INDEX
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    assert not settings.pip_settings()
