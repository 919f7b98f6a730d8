"""Puts `conf/` and `sweeps/`, which lie beside the packages, inside the wheel; all else is in pyproject.toml."""

from setuptools import find_packages, setup

OURS = ("algorithms", "envs", "evo_hpo", "rewards")
DATA = {"evo_hpo.conf": "conf", "evo_hpo.sweeps": "sweeps"}

setup(
    packages=[*find_packages(include=[*OURS, *(f"{name}.*" for name in OURS)]), *DATA],
    package_dir=DATA,
    package_data={
        **{package: ["**/*.yaml"] for package in DATA},
        "evo_hpo": ["**/*.json", "**/*.safetensors", "**/*.jinja", "**/*.html", "**/*.css", "**/*.js"],
    },
)
