"""What is installed is what is in the checkout: packages, YAML files, data, versions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from evo_hpo.config import paths

ROOT = paths.PACKAGE.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGES = ("algorithms", "envs", "evo_hpo", "rewards")


def test_in_a_checkout_the_yaml_files_are_those_beside_the_package() -> None:
    assert paths.conf() == ROOT / "conf" and paths.sweeps() == ROOT / "sweeps"


def test_every_folder_with_code_is_a_package() -> None:
    folders = {file.parent for package in PACKAGES for file in (ROOT / package).rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def test_the_locked_versions_are_in_the_ranges_and_cover_them() -> None:
    locked = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    locked = {name.lower().replace("_", "-"): version for name, version in locked.items()}
    extras = [line for lines in PROJECT["optional-dependencies"].values() for line in lines]
    for requirement in map(Requirement, [*PROJECT["dependencies"], *extras]):
        assert requirement.name.lower() in locked, f"{requirement.name} is not locked"
        assert requirement.specifier.contains(locked[requirement.name.lower()], prereleases=True)


@pytest.mark.parametrize("oldest", ["torch==2.11.0", "transformers==5.17.0", "peft==0.21.0"])
def test_the_ranges_admit_the_oldest_versions_that_are_promised(oldest: str) -> None:
    name, _, version = oldest.partition("==")
    [requirement] = [r for r in map(Requirement, PROJECT["dependencies"]) if r.name == name]
    assert requirement.specifier.contains(version)


@pytest.mark.slow
def test_an_installed_wheel_finds_its_yaml_files_and_its_base_model(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", tmp_path / "wheel", ROOT], check=True, timeout=300)
    [wheel] = (tmp_path / "wheel").iterdir()
    site = tmp_path / "site"
    subprocess.run([*pip, "install", "--no-deps", "--target", site, wheel], check=True, timeout=300)
    for folder in ("conf", "sweeps"):
        ours = {file.relative_to(ROOT / folder) for file in (ROOT / folder).rglob("*.yaml")}
        assert {
            file.relative_to(site / "evo_hpo" / folder) for file in (site / "evo_hpo" / folder).rglob("*.yaml")
        } == ours
    small = ["experiment=smoke", "evaluation.tasks=4", "evaluation.final_tasks=4", "tracker.wandb=disabled"]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    script = (
        "import sys, evo_hpo.config.paths as p; print(p.conf()); from evo_hpo.cli.main import main; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "run", *small],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(site / "evo_hpo" / "conf"))
    [run] = (tmp_path / "runs").iterdir()
    assert (run / "report.html").exists()
