"""The commands of `python -m evo_hpo` that look at what there is."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.requirements import Requirement

from evo_hpo.cli.doctor import found
from evo_hpo.cli.main import main
from evo_hpo.config import paths


def test_list_names_every_group_and_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    for folder in (path for path in paths.conf().iterdir() if path.is_dir()):
        assert f"\n{folder.name}: " in f"\n{out}"
    for option in (file.stem for file in paths.conf().rglob("*/*.yaml")):
        assert option in out
    assert all(file.stem in out for file in paths.sweeps().glob("*.yaml"))


def test_list_of_a_group_says_what_each_option_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "model"]) == 0
    assert "hf            Any Hugging Face causal language model" in capsys.readouterr().out


@pytest.mark.parametrize("group", ["evolution", "sweep"])
def test_list_shows_search_spaces(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", group]) == 0
    assert (
        "algorithm.optimizer.learning_rate: 0.1 to 10 times its own value (float, logarithmic)"
        in capsys.readouterr().out
    )


def test_list_of_an_unknown_group_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "algoritm"]) == 2
    assert "error: there is no group 'algoritm'; did you mean algorithm?" in capsys.readouterr().err


def test_doctor_finds_everything_a_default_run_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    for name in ("torch", "hydra-core", "cpu:", "joblib:", "tracker.wandb: no key is set", str(tmp_path)):
        assert name in out
    assert list(tmp_path.iterdir()) == []


def test_doctor_names_what_is_missing_or_too_old() -> None:
    assert found(Requirement("no-such-thing>=2")) == (False, "no-such-thing is not installed; it needs >=2")
    good, line = found(Requirement("rich>=99"))
    assert not good and line.endswith("does not do; install rich>=99")
    assert found(Requirement("rich"))[0]


def test_doctor_does_not_print_a_key(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "verysecretvalue")
    main(["doctor"])
    out = capsys.readouterr().out
    assert "a key is set" in out and "verysecretvalue" not in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["report", "nowhere"], "error: nowhere is no run folder"),
        (["export", "nowhere", "--to", "adapter"], "error: nowhere is no run folder"),
        (
            ["export", ".", "--to", "adapter", "--member", "worst"],
            "error: --member is 'worst'; write best, or the number",
        ),
        (["export", ".", "--to", "."], "error: --to . exists already"),
        (["play", "nowhere"], "error: nowhere is no run folder"),
        (["play", ".", "env=guess_number"], "error: a run keeps its own config"),
        (["play", "base", "--episodes", "0"], "error: --episodes is 0; write 1 or more"),
        (["play", "base", "--temperature", "0"], "error: --temperature is 0; write a number above 0"),
        (["play", "base", "env=guess_nummer"], "error: there is no env 'guess_nummer'; did you mean guess_number?"),
    ],
)
def test_a_command_that_cannot_be_done_says_why(
    arguments: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").touch()
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(sentence)


def test_run_is_the_same_as_launch(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "rollout.tasks=0"]) == 2
    assert capsys.readouterr().err == "error: rollout.tasks must be greater than 0, not 0 (override rollout.tasks=0)\n"
