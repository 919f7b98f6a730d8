"""Runs side by side: which are repeats, what equal budget means, and what may be said about few runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from evo_hpo.cli.main import main
from evo_hpo.config.compose import compose
from evo_hpo.config.errors import UserError
from evo_hpo.config.provenance import complete, leaves
from evo_hpo.tracking.compare import Arm, arms_of, print_table, write_comparison
from evo_hpo.tracking.compare.arms import common_budget, remarks
from evo_hpo.tracking.compare.labels import Setting, labels
from evo_hpo.tracking.compare.statistics import Estimate, improvement, iqm
from evo_hpo.tracking.compare.table import points_or_iqm, rows


def run_folder(folder: Path, seed: int, success: float, fitness: list[float], tokens: int = 100, **config: Any) -> Path:
    """A finished run with one fitness (of its best member) per generation, at `tokens` a generation."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump({"name": folder.name, "seed": seed, **config}))
    lines = []
    for generation, best in enumerate(fitness):
        for member, worth in enumerate((best, best / 2)):
            spent = {"policy_tokens": tokens * (generation + 1), "environment_turns": generation + 1, "seconds": 1.0}
            spent["update"] = 5 * (generation + 1)
            lines.append({"kind": "generation", "generation": generation, "member": member, "fitness": worth, **spent})
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    best_of = {"success": success, "low": success - 0.1, "high": success + 0.1, "member": 0}
    total = {"policy_tokens": tokens * len(fitness), "environment_turns": len(fitness), "seconds": 9.0}
    (folder / "result.json").write_text(json.dumps({"best": best_of, **total}))
    return folder


def gated(n: int, **changes: Any) -> dict[str, Any]:
    return {"evolution": {"strategy": {"_target_": "evo_hpo.evolution.strategies.Gated"}, "population": n, **changes}}


def lone() -> dict[str, Any]:
    return {"evolution": {"strategy": {"_target_": "evo_hpo.evolution.strategies.NoEvolution"}, "population": 1}}


@pytest.fixture
def arms(tmp_path: Path) -> list[Arm]:
    folders = [run_folder(tmp_path / f"g{s}", s, 0.6 + s / 100, [0.2, 0.5, 0.7], **gated(8)) for s in range(6)]
    folders += [run_folder(tmp_path / f"l{s}", s, 0.4 + s / 100, [0.3, 0.4], tokens=75, **lone()) for s in range(6)]
    return arms_of(folders)


def test_runs_that_differ_in_seed_and_name_are_repeats(arms: list[Arm]) -> None:
    assert [arm.label for arm in arms] == ["strategy=Gated, population=8", "strategy=NoEvolution, population=1"]
    assert [len(arm.runs) for arm in arms] == [6, 6]
    assert arms[0].successes == pytest.approx([0.6, 0.61, 0.62, 0.63, 0.64, 0.65])


def test_where_and_how_fast_a_run_was_made_is_no_setting(tmp_path: Path) -> None:
    folders = [run_folder(tmp_path / d, 0, 0.5, [0.4], device=d, tracker={"episodes": n}) for n, d in enumerate("ab")]
    assert [(arm.label, len(arm.runs)) for arm in arms_of(folders)] == [("all runs", 2)]


def test_a_folder_counts_once_however_it_is_named(tmp_path: Path) -> None:
    one, two = (run_folder(tmp_path / "multirun" / name, seed, 0.5, [0.4]) for seed, name in ((1, "10_b"), (0, "9_a")))
    named = [one, one.parent / ".." / "multirun" / one.name, tmp_path / "multirun", one]
    [arm] = arms_of(named)
    assert [run.folder for run in arm.runs] == [one, two]
    assert [run.folder for run in arms_of([tmp_path / "multirun"])[0].runs] == [two, one]  # by their numbers


def test_runs_that_are_no_full_repeats_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, again, other = (run_folder(tmp_path / n, s, 0.5, [0.4]) for n, s in (("a", 3), ("b", 3), ("c", 4)))
    assert remarks(arms_of([first, other])) == []
    (again / "result.json").unlink()
    arms = arms_of([first, again, other])
    assert remarks(arms) == [
        f"{again} is not finished; it counts as far as it went.",
        f"{first} and {again} have the same settings and the same seed, 3: no repeats of each other.",
    ]
    print_table(arms, "policy_tokens")
    page = write_comparison(arms, "policy_tokens", tmp_path / "page.html").read_text()
    printed = capsys.readouterr().out
    assert all(remark in printed and remark in page for remark in remarks(arms))


def composed(*overrides: str) -> Setting:
    job = compose(["evolution=gated", "name=run", *overrides])
    return Setting(dict(leaves(job.values)), complete(job.provenance, job.values))


@pytest.mark.parametrize(
    ("jobs", "told"),
    [
        (["evolution=none", "evolution=gated"], ["evolution=none", "evolution=gated"]),
        (["algorithm=grpo", "algorithm=ppo"], ["algorithm=grpo", "algorithm=ppo"]),  # ppo.yaml builds on grpo.yaml
        (["", "evolution.strategy.elites=1"], ["elites=2", "elites=1"]),
        (
            ["evolution=none", "", "evolution.strategy.elites=1"],
            ["evolution=none", "evolution=gated, elites=2", "evolution=gated, elites=1"],
        ),
        (
            ["evolution=none", "evolution.population=4 pipeline.stages.train.generations=2"],
            ["evolution=none, generations=8, population=1", "evolution=gated, generations=2, population=4"],
        ),
        (["algorithm/objective=clipped", "algorithm/objective=cispo"], ["objective=Clipped", "objective=CISPO"]),
        (["", "algorithm.kl.coef=0.1"], ["kl.coef=0.01", "kl.coef=0.1"]),  # that of the stage is the same key
        (
            ["", "evolution.space.rollout.temperature.high=2"],
            ["evolution.space.rollout.temperature.high=1.3", "evolution.space.rollout.temperature.high=2"],
        ),
        (["", "evolution/space=none"], ["space of 6 keys", "space of 0 keys"]),
        (["", "evolution.species.algorithm=[grpo,ppo]"], ["algorithm=None", "algorithm=['grpo', 'ppo']"]),
        (["", "+reward.more=1"], ["without more", "more=1"]),
    ],
)
def test_a_setting_is_called_by_the_choice_that_brought_the_rest_along(jobs: list[str], told: list[str]) -> None:
    assert labels([composed(*job.split()) for job in jobs]) == told


def test_where_a_class_differs_its_keys_are_not_listed(tmp_path: Path) -> None:
    elites = gated(8)
    elites["evolution"]["strategy"] |= {"elites": 2, "cooldown": 0}
    folders = [run_folder(tmp_path / "a", 0, 0.5, [0.4], **elites), run_folder(tmp_path / "b", 0, 0.5, [0.4], **lone())]
    assert [arm.label for arm in arms_of(folders)] == [
        "strategy=Gated, population=8",
        "strategy=NoEvolution, population=1",
    ]


def test_settings_that_differ_in_more_than_a_label_holds_are_still_told_apart(tmp_path: Path) -> None:
    settings = [(1, 1, 1, 1), (2, 2, 2, 1), (1, 1, 1, 2)]
    folders = [run_folder(tmp_path / f"r{s}", 0, 0.5, [0.4], **dict(zip("abcd", s, strict=True))) for s in settings]
    labels = [arm.label for arm in arms_of(folders)]
    assert len(set(labels)) == 3 and labels[1] == "a=2, b=2, c=2"


def test_at_equal_budget_a_run_is_worth_what_it_had_reached_by_then(arms: list[Arm]) -> None:
    spent = common_budget(arms, "policy_tokens")
    assert spent == 150  # the others ended there
    assert arms[0].fitness_at("policy_tokens", spent) == [0.2] * 6  # one generation of 100 was complete
    assert arms[1].fitness_at("policy_tokens", spent) == [0.4] * 6
    assert arms[0].runs[0].spent_until("policy_tokens", 0.5) == 200
    assert arms[1].runs[0].spent_until("policy_tokens", 0.5) is None


def test_a_run_counts_with_the_generation_that_ends_nearest_to_the_common_budget(tmp_path: Path) -> None:
    run, control = arms_of(
        [
            run_folder(tmp_path / "run", 0, 0.5, [0.2, 0.5, 0.7], tokens=100, **gated(8)),
            run_folder(tmp_path / "control", 0, 0.5, [0.1] * 4, tokens=73, **lone()),
        ]
    )
    assert common_budget([run, control], "policy_tokens") == 292
    assert run.fitness_at("policy_tokens", 292) == [0.7]  # of its last 100 tokens 8 are beyond
    assert run.fitness_at("policy_tokens", 251) == [0.7] and run.fitness_at("policy_tokens", 250) == [0.5]
    assert run.fitness_at("policy_tokens", 50) == []


def test_a_generation_counts_the_updates_of_each_member(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = run_folder(tmp_path / "a", 0, 0.5, [0.2, 0.5, 0.7], **gated(8))
    short = run_folder(tmp_path / "b", 0, 0.5, [0.3, 0.4], **lone())
    first, second = arms_of([long, short])
    assert common_budget([first, second], "updates") == 10
    assert [row["generations"] for row in rows([first, second], "updates")] == ["3", "2"]
    assert main(["compare", "--budget", "updates", str(long), str(short), "--to", str(tmp_path / "page.html")]) == 0
    assert "fitness at 10 updates of each member" in capsys.readouterr().out


def test_the_page_says_which_line_is_which_setting(arms: list[Arm], tmp_path: Path) -> None:
    text = write_comparison(arms, "policy_tokens", tmp_path / "page.html").read_text()
    [legend] = re.findall('<div class="legend always">(.*?)</div>', text)
    for place, arm in enumerate(arms):
        assert f'<span class="chip m{place}">{arm.label}</span>' in legend
        assert f'<g class="series m{place}" data-m="{place}"><title>{arm.label}' in text
    assert re.search(r"\.legend\.always \{ display: flex \}", text)  # other legends need a script to show


def test_what_the_result_was_measured_with_is_no_budget(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", 0, 0.5, [0.2, 0.5])
    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps(result | {"policy_tokens": 260}))
    [arm] = arms_of([folder])
    assert common_budget([arm], "policy_tokens") == 200 and arm.runs[0].total("policy_tokens") == 260


def test_runs_that_measured_different_things_are_not_compared(tmp_path: Path) -> None:
    measures = [("success", "tasks"), ("success", "tasks"), ("pairs in the right order", "pairs")]
    folders = [run_folder(tmp_path / f"r{n}", n, 0.5, [0.4]) for n in range(4)]
    for folder, (measured, held_out) in zip(folders, measures, strict=False):
        result = json.loads((folder / "result.json").read_text())
        (folder / "result.json").write_text(json.dumps(result | {"measured": measured, "held_out": held_out}))
    arms_of([folders[0], folders[1], folders[3]])  # what the last one measures is not known
    with pytest.raises(UserError) as refused:
        arms_of(folders)
    assert str(refused.value) == (
        f"{folders[0]} measured success on tasks, {folders[2]} measured pairs in the right order on pairs: these "
        "numbers cannot be compared; compare each kind alone"
    )


def test_the_interquartile_mean_is_that_of_the_middle_half() -> None:
    assert iqm([9.0, 1.0, 2.0, 3.0]).value == 2.5
    assert iqm([0, 0, 1, 2, 3, 4, 100, 100]).value == 2.5
    # of five values the middle 2.5 count: the third whole, its neighbours by three quarters each
    assert iqm([0.0, 1.0, 2.0, 4.0, 100.0]).value == pytest.approx((0.75 * 1 + 2 + 0.75 * 4) / 2.5)
    assert iqm([0.7]) == Estimate(0.7)


def test_an_interval_needs_five_runs_and_holds_the_value() -> None:
    assert iqm([0.1, 0.2, 0.3, 0.4]).low is None
    five = iqm([0.1, 0.2, 0.3, 0.4, 0.5])
    assert five.low is not None and five.high is not None and 0.1 <= five.low < five.value < five.high <= 0.5
    assert iqm([0.3] * 5) == Estimate(pytest.approx(0.3), pytest.approx(0.3), pytest.approx(0.3))  # type: ignore[arg-type]


def test_the_probability_of_improvement_counts_pairs_of_runs() -> None:
    assert improvement([3.0, 1.0], [2.0, 1.0]).value == (1 + 1 + 0 + 0.5) / 4
    sure = improvement([2.0] * 5, [1.0] * 5)
    assert (sure.value, sure.low, sure.high) == (1.0, 1.0, 1.0)
    for few in (improvement([2.0] * 5, [1.0] * 4), improvement([2.0] * 4, [1.0] * 5)):
        assert few == Estimate(1.0)


def test_few_runs_are_shown_as_points() -> None:
    assert points_or_iqm([0.5, 0.25]) == "0.250 0.500"
    assert points_or_iqm([]) == "none"
    assert points_or_iqm([0.5] * 5) == "0.500 [0.500, 0.500]"


def test_the_table_says_what_was_spent_and_how_sure_the_difference_is(arms: list[Arm]) -> None:
    first, second = rows(arms, "policy_tokens")
    assert first["sampled tokens"] == "300" and second["sampled tokens"] == "150"
    assert first["P(better)"] == "" and second["P(better)"].startswith("0.000 [0.000")
    few = [Arm(arm.label, arm.runs[:2]) for arm in arms]
    for pair in (few, [few[0], arms[1]], [arms[0], few[1]]):
        assert rows(pair, "policy_tokens")[1]["P(better)"] == "too few runs"
    mixed = [Arm("both", [arms[0].runs[0], arms[1].runs[0]])]
    assert rows(mixed, "policy_tokens")[0]["sampled tokens"] == "150 to 300"


def test_the_command_prints_and_writes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [run_folder(tmp_path / f"r{s}", s, 0.5, [0.2, 0.4], **gated(4)) for s in range(2)]
    page = tmp_path / "page.html"
    assert main(["compare", *map(str, folders), "--to", str(page)]) == 0
    said = capsys.readouterr().out
    assert "all runs" in said and "0.500 0.500" in said and str(page) in said
    text = page.read_text()
    assert "<script" not in text and "Fitness by sampled tokens" in text and "r1" in text


def test_a_curve_spans_what_all_runs_of_its_setting_have_spent(tmp_path: Path) -> None:
    folders = [run_folder(tmp_path / "a", 0, 0.5, [0.2, 0.4, 0.6]), run_folder(tmp_path / "b", 1, 0.5, [0.8, 0.9], 125)]
    text = write_comparison(arms_of(folders), "policy_tokens", tmp_path / "page.html").read_text()
    [chart] = re.findall("Fitness by sampled tokens</figcaption>(.*?)</svg>", text)
    ticks = [int(tick) for tick in re.findall(r'text-anchor="middle">(\d+)<', chart)]
    assert ticks == [150, 200, 250]  # from 125, where the second has its first generation, to its end


def test_what_a_name_holds_stays_inert(tmp_path: Path) -> None:
    hostile = [run_folder(tmp_path / f"x{n}", 0, 0.5, [0.4], note=note) for n, note in enumerate(("<b>", "&"))]
    text = write_comparison(arms_of(hostile), "seconds", tmp_path / "page.html").read_text()
    assert "<b>" not in text and "note=&lt;b&gt;" in text


def test_runs_without_a_result_are_compared_as_far_as_they_went(tmp_path: Path) -> None:
    done, stopped = (run_folder(tmp_path / name, 0, 0.5, [0.2, 0.4], **gated(n)) for name, n in (("a", 2), ("b", 3)))
    (stopped / "result.json").unlink()
    (stopped / "metrics.jsonl").write_text("")
    arms = arms_of([done, stopped])
    assert rows(arms, "policy_tokens")[1]["success on final tasks"] == "none"
    assert "not finished" in write_comparison(arms, "policy_tokens", tmp_path / "page.html").read_text()


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no run folder"):
        arms_of([tmp_path])
