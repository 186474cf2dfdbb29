"""The Dockerfile and the compose file, checked by linters: no engine runs them here."""

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sysconfig.get_path("scripts")


def test_the_dockerfile_has_no_faults():
    hadolint = shutil.which("hadolint", path=SCRIPTS)
    if hadolint is None:
        pytest.skip("hadolint is not there: its wheel is for Linux on x86-64")
    ran = subprocess.run(
        [hadolint, "deploy/Dockerfile"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "")


def test_the_compose_file_has_no_faults():
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    ran = subprocess.run(
        [*command, "deploy/compose.yaml"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout


def test_both_run_the_service_without_a_default_password_and_without_root():
    dockerfile = (ROOT / "deploy/Dockerfile").read_text()
    compose = (ROOT / "deploy/compose.yaml").read_text()
    assert 'ENTRYPOINT ["gradband", "serve"]' in dockerfile
    assert re.search(r"^USER \d+$", dockerfile, re.MULTILINE)
    assert set(re.findall(r"PASSWORD: (.*)", compose)) == {
        "${POSTGRES_PASSWORD:?write it into deploy/.env}"
    }
    assert re.findall(r'- "(\S+)" # put a proxy', compose) == ["127.0.0.1:8000:8000"]
