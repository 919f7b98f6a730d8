import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from evo_hpo.tracking.jsonl import JsonlTracker, read_jsonl
from evo_hpo.tracking.progress import number
from evo_hpo.tracking.report import write_report
from evo_hpo.tracking.report.charts import Series, line_chart
from evo_hpo.tracking.report.data import load
from evo_hpo.tracking.report.episodes import EMBEDDED, spread
from tests.tracking.fake_run import play, run_info, write_rest

VOID = {"meta", "br", "img", "input", "link"}
HERE = Path(__file__).parents[2] / "evo_hpo" / "tracking" / "report"


class Page(HTMLParser):
    """Every element and attribute of a page as a browser would see it, and whether the tags match."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    def all(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        wanted = {name.rstrip("_"): value for name, value in attributes.items()}
        return [has for name, has in self.elements if name == tag and wanted.items() <= has.items()]


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    tracker, run = JsonlTracker(kept=3), run_info(tmp_path)
    tracker.start(run)
    result = play(tracker, run)
    tracker.finish(result)
    write_rest(tmp_path, result)
    return tmp_path


def add_episodes(folder: Path, *episodes: dict[str, Any]) -> None:
    with open(folder / "episodes.jsonl", "a", encoding="utf-8") as file:
        file.writelines(json.dumps({"generation": 0, "split": "eval", "member": 0} | each) + "\n" for each in episodes)


def test_the_report_tells_what_the_run_was_worth(run_folder: Path) -> None:
    path = write_report(run_folder)
    assert path == run_folder / "report.html"
    text = Page(path).text
    result = json.loads((run_folder / "result.json").read_text())
    assert f"{result['base']['success']:.0%} → {result['best']['success']:.0%}" in text
    assert re.search(r"\+51 points \(95 % interval \+\d+ to \+\d+\), clearly better", text)
    assert "432k sampled tokens" in text and "2 alarms" in text


def test_every_section_is_filled(run_folder: Path) -> None:
    page = Page(write_report(run_folder))
    assert [has["id"] for has in page.all("section")] == [
        "result", "fitness", "hyperparameters", "lineage", "training", "reward", "alarms", "transcripts", "config",
    ]  # fmt: skip
    assert page.all("p", class_="none") == [] and page.all("p", class_="warning") == []
    assert "Member 2: 95% of what it writes is the same few characters over and over" in page.text
    assert "Member 2 (0.00) is replaced by a copy of member" in page.text
    for metric in ("Outcome that was paid", "Success in the same episodes", "loss", "kl", "entropy", "grad norm"):
        assert page.all("svg", **{"aria-label": metric})


def test_a_reward_of_several_parts_has_a_chart_for_each_and_its_judge_a_sentence(run_folder: Path) -> None:
    assert "Parts of the reward" not in Page(write_report(run_folder)).text
    updates = [json.loads(line) for line in (run_folder / "metrics.jsonl").read_text().splitlines()]
    for line in updates:
        if line["kind"] == "update":
            line |= {"reward/tone": 0.5, "reward/<b>": 0.1, "reward/tone/words": 3.0}
            line |= {"judge/groups": 1.0, "judge/calls": 1.0}
    (run_folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, updates)))
    page = Page(write_report(run_folder))
    assert page.all("svg", **{"aria-label": "tone"}) and page.all("svg", **{"aria-label": "<b>"})
    assert not page.all("svg", **{"aria-label": "tone/words"})
    assert f"The judge had {8 * 48} requests about {8 * 48} groups: 0 prompt" in page.text
    one = [{key: value for key, value in line.items() if key != "reward/<b>"} for line in updates]
    (run_folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, one)))
    assert "Parts of the reward" not in Page(write_report(run_folder)).text


def test_each_member_has_a_curve_with_intervals(run_folder: Path) -> None:
    html = write_report(run_folder).read_text()
    start = html.index('aria-label="Success on the common held-out tasks"')
    chart = html[start : html.index("</svg>", start)]
    assert re.findall(r'data-m="(\d+)"', chart) == [str(member) for member in range(8)]
    assert chart.count('class="whisker"') == 8 * 6
    assert chart.count('class="level"') == 2  # the base and its interval


def test_the_lineage_has_an_arrow_for_every_copy_and_marks_the_winners_way(run_folder: Path) -> None:
    page = Page(write_report(run_folder))
    lineage = read_jsonl(run_folder / "lineage.jsonl")
    heads = [has for has in page.all("path") if "head" in (has["class"] or "")]
    assert len(heads) == sum(line["event"] == "cloned" for line in lineage) > 0
    winners = [has for has in page.all("g") if (has.get("class") or "").endswith(" winner")]
    assert len(winners) == 6  # one cell per generation


def test_the_winners_way_follows_the_parents(run_folder: Path) -> None:
    data = load(run_folder)
    path = data.ancestry()
    assert [line["generation"] for line in path] == list(range(6)) and path[-1]["member"] == data.winner()
    by_place = {(line["generation"], line["member"]): line for line in data.lineage}
    for earlier, later in zip(path, path[1:], strict=False):
        assert by_place[earlier["generation"], later["member"]]["parent"] == earlier["member"]
    assert len({line["member"] for line in path}) > 1


def tiles(path: Path) -> list[str]:
    """Each tile as the sentence that it reads as."""
    return [" ".join(tile) for tile in re.findall(r"<div><b>(.*?)</b><span>(.*?)</span></div>", path.read_text())]


def lineage_of(folder: Path, *generations: list[tuple[int, int, str]], selected: tuple[bool, ...] = ()) -> None:
    """Write a lineage: of each generation (member, parent, event) of its members."""
    asked = selected or (True,) * len(generations)
    lines = [
        {
            "generation": n,
            "member": m,
            "parent": p,
            "event": e,
            "text": f"{e} {m}",
            "selected": asked[n],
            "fitness": 0.5,
        }
        for n, lines in enumerate(generations)
        for m, p, e in lines
    ]
    (folder / "lineage.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_tiles_of_a_lineage_are_sentences(run_folder: Path) -> None:
    kept = [(m, m, "kept") for m in range(4)]
    lineage_of(run_folder, [*kept[:3], (3, 3, "retired")], kept[:3], selected=(True, False))
    assert tiles(write_report(run_folder))[-4:] == [
        "3 lines of descent left", "No line had taken over by the end", "0 copies",
        "0% of selections left everybody in place",
    ]  # fmt: skip
    lineage_of(run_folder, [(0, 0, "kept"), (1, 0, "cloned")], kept[:2], kept[:2], selected=(True, True, False))
    assert tiles(write_report(run_folder))[-5:] == [
        "1 line of descent left", "1 generation until one line had taken over", "1 copy",
        "member 0 (100%) gave most of them", "50% of selections left everybody in place",
    ]  # fmt: skip
    lineage_of(run_folder, [(0, 0, "elite"), (1, 1, "elite"), (2, 0, "cloned"), (3, 1, "cloned")], selected=(True,))
    assert "members 0 and 1 (50%) gave most of them, each of these as many" in tiles(write_report(run_folder))
    lineage_of(run_folder, kept[:1], selected=(False,))
    assert tiles(write_report(run_folder))[-3:] == ["1 line of descent left", "0 copies", "No selection took place"]


def test_one_of_anything_is_in_the_singular(run_folder: Path) -> None:
    result = json.loads((run_folder / "result.json").read_text())
    (run_folder / "result.json").write_text(json.dumps(result | {"generations": 1, "population": 1}))
    alarm = {"kind": "alarm", "generation": 0, "update": 0, "alarm": "no_signal", "text": "Nothing."}
    (run_folder / "metrics.jsonl").write_text(json.dumps(alarm) + "\n")
    told = tiles(write_report(run_folder))
    assert {"1 generation", "1 member", "1 alarm", "432k sampled tokens"} <= set(told)


def test_who_leaves_or_begins_anew_is_in_the_words_of_the_lineage(run_folder: Path) -> None:
    events = ["kept", "elite", "retired", "restarted", "rescued"]
    lineage_of(run_folder, [(m, m, event) for m, event in enumerate(events)], [(0, 0, "kept")])
    html = write_report(run_folder).read_text()
    [words] = re.findall(r"Whoever lost its place, in words</summary>(.*?)</details>", html)
    assert re.findall(r"</span> (\w+ \d)", words) == ["retired 2", "restarted 3", "rescued 4"]
    [tree] = re.findall(r'<svg class="tree".*?</svg>', html, re.DOTALL)
    assert len(re.findall('class="stay', tree)) == 3  # no way leads on from who retires or begins anew


def test_who_is_injected_founds_a_family_in_its_slot(run_folder: Path) -> None:
    kept = [(m, m, "kept") for m in range(3)]
    lineage_of(run_folder, [kept[0], (1, 0, "injected"), (2, 0, "cloned")], kept)
    families = re.findall(r"Slot \d, generation 2, family (\d)", write_report(run_folder).read_text())
    assert families == ["0", "1", "0"]


def test_the_winners_way_is_that_of_the_delivered_agent(run_folder: Path) -> None:
    trials = [[(0, 0, "kept")], [(0, 0, "restarted")], [(0, 0, "kept")], [(0, 0, "restarted")], [(0, 0, "kept")]]
    lineage_of(run_folder, *trials)
    assert [line["generation"] for line in load(run_folder).ancestry()] == [4]  # what was before is another's
    steps: list[dict[str, Any]] = [{"generation": n, "member": 0, "stage": "rl", "hyperparameters": {}} for n in (2, 3)]
    (run_folder / "schedule.yaml").write_text(yaml.safe_dump(steps))
    assert [line["generation"] for line in load(run_folder).ancestry()] == [2, 3]
    html = write_report(run_folder).read_text()
    assert re.findall(r"<tr><td>(\d)</td><td><span class=.chip", html) == ["3", "4"]
    (run_folder / "result.json").unlink()  # the run goes on
    assert [line["generation"] for line in load(run_folder).ancestry()] == [4]


def test_hyperparameters_over_decades_have_a_logarithmic_axis(run_folder: Path) -> None:
    html = write_report(run_folder).read_text()
    assert "<figcaption>lr <small>log scale</small>" in html and "<figcaption>clip_low</figcaption>" in html


def test_the_winners_turns_are_laid_side_by_side(run_folder: Path) -> None:
    page = Page(write_report(run_folder))
    updates = [line for line in read_jsonl(run_folder / "metrics.jsonl") if line["kind"] == "update"]
    own = [line for line in updates if line["member"] == load(run_folder).winner() and line["generation"] == 5]
    late = sum(line["turn/reward/3"] for line in own) / len(own)
    assert "turn 0 1 2 3 4 5 6 7 8+ reward" in page.text and f" {number(late)} " in page.text
    assert "entropy, nats a token 0.5 0.45 0.4 0.35 0.3 0.25 0.2 0.15 0.05" in page.text
    shades = [has["style"] for has in page.all("td") if "style" in has]
    assert shades[:2] == ["--share: 0.00", f"--share: {1 / 9:.2f}"] and shades[9] == "--share: 1.00"
    assert not [has for has in page.all("svg") if "turn/" in (has.get("aria-label") or "")]


def test_the_winners_turns_are_those_of_the_delivered_agent(run_folder: Path) -> None:
    (run_folder / "schedule.yaml").write_text("- {generation: 1, member: 2}\n")
    updates = [line for line in read_jsonl(run_folder / "metrics.jsonl") if line["kind"] == "update"]
    own = [line for line in updates if line["member"] == 2 and line["generation"] == 1]
    assert f" {number(sum(line['turn/reward/7'] for line in own) / len(own))} " in Page(write_report(run_folder)).text


def test_values_carry_their_source_and_no_secret(run_folder: Path) -> None:
    page = Page(write_report(run_folder))
    assert "algorithm.optimizer.lr 0.001 override algorithm.optimizer.lr=0.001" in page.text
    assert "rollout.tasks 4 conf/rollout/fused.yaml" in page.text
    assert "abcdefgh" not in page.text and "judge.api_key <removed>" in page.text


def test_the_page_needs_nothing_but_itself(run_folder: Path) -> None:
    path = write_report(run_folder)
    page = Page(path)
    assert not [has for _, has in page.elements if "src" in has or (has.get("href") or "#")[0] != "#"]
    assert not re.search(r"url\(|@import|https?://", path.read_text())
    assert page.all("link") == []


def test_every_drawing_is_well_formed(run_folder: Path) -> None:
    drawings = re.findall(r"<svg.*?</svg>", write_report(run_folder).read_text(), re.DOTALL)
    assert len(drawings) > 20
    for drawing in drawings:
        for element in ElementTree.fromstring(drawing).iter():
            assert not [value for value in element.attrib.values() if "nan" in value or "inf" in value.split()]


HOSTILE = "</script></pre></details><img src=x onerror=alert(1)><script>alert(2)</script>\"'<b>&amp;\x00\x1b[31m\ud800"


def test_what_agents_and_environments_write_stays_inert(run_folder: Path) -> None:
    calm = Page(write_report(run_folder))
    turn = {"observation": HOSTILE, "action": HOSTILE, "reward": 1.0, "valid": False, "truncated": True}
    add_episodes(
        run_folder,
        {
            "turns": [turn],
            "final_observation": HOSTILE,
            "error": HOSTILE,
            "split": HOSTILE,
            "stop": HOSTILE,
            "task": HOSTILE,
        },
    )
    with open(run_folder / "metrics.jsonl", "a") as file:
        file.write(
            json.dumps({"kind": "alarm", "generation": 0, "update": 0, "alarm": HOSTILE, "text": HOSTILE}) + "\n"
        )
        file.write(json.dumps({"kind": "update", "update": 50, "member": 0, HOSTILE: 1.0}) + "\n")
    with open(run_folder / "lineage.jsonl", "a") as file:
        line = {
            "generation": 6,
            "member": 0,
            "parent": 1,
            "event": HOSTILE,
            "text": HOSTILE,
            "before": {HOSTILE: HOSTILE},
        }
        file.write(json.dumps(line) + "\n")
    (run_folder / "config.yaml").write_text(json.dumps({"name": HOSTILE, HOSTILE: HOSTILE}))
    page = Page(write_report(run_folder))
    assert page.all("img") == [] and page.all("b", class_="x") == []
    assert (
        len(page.all("script")) == 1
        and len(page.all("details", class_="episode")) == len(calm.all("details", class_="episode")) + 1
    )
    assert not [name for _, has in page.elements for name in has if name.startswith("on")]
    assert "<img src=x onerror=alert(1)>" in page.text, "it must still be readable"
    assert "␀␛[31m" in page.text


def test_only_our_own_script_may_run(run_folder: Path) -> None:
    path = write_report(run_folder)
    policy = Page(path).all("meta", **{"http-equiv": "Content-Security-Policy"})[0]["content"]
    assert policy and policy.startswith("default-src 'none'") and "script-src 'sha256-" in policy
    script = path.read_text().split("<script>")[1].split("</script>")[0]
    assert script == (HERE / "script.js").read_text()


FILES = ["config.yaml", "provenance.yaml", "metrics.jsonl", "lineage.jsonl", "episodes.jsonl", "result.json"]


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named_and_the_rest_is_shown(run_folder: Path, name: str) -> None:
    (run_folder / name).unlink()
    page = Page(write_report(run_folder))
    assert f"{name} is missing." in page.text
    assert len(page.all("section")) == 9


@pytest.mark.parametrize("name", [*FILES, "schedule.yaml"])
@pytest.mark.parametrize("kept", [0.0, 0.3, 0.99])
def test_a_cut_file_does_not_stop_the_report(run_folder: Path, name: str, kept: float) -> None:
    (run_folder / "schedule.yaml").write_text("- {generation: 0, member: 0, stage: rl, hyperparameters: {lr: 0.1}}\n")
    path = run_folder / name
    os.truncate(path, int(path.stat().st_size * kept))
    assert len(Page(write_report(run_folder)).all("section")) == 9


@pytest.mark.parametrize("name", ["metrics.jsonl", "lineage.jsonl", "episodes.jsonl"])
def test_altered_lines_are_named_and_left_out(run_folder: Path, name: str) -> None:
    lines = (run_folder / name).read_text().splitlines()
    odd = [
        "nonsense",
        "[]",
        "{}",
        '{"kind": "update", "member": "x"}',
        '{"kind": "update", "update": 1, "member": null}',
    ]
    (run_folder / name).write_text("\n".join([*lines[:2], *odd, *lines[2:]]) + "\n")
    page = Page(write_report(run_folder))
    assert f"line 3 of {name} is no JSON object" in page.text
    assert len(page.all("section")) == 9


@pytest.mark.parametrize("content", ["[]", "null", "{", '{"base": 1, "best": {"success": null}}', '{"seconds": "x"}'])
def test_a_result_of_another_shape_does_not_stop_the_report(run_folder: Path, content: str) -> None:
    (run_folder / "result.json").write_text(content)
    assert len(Page(write_report(run_folder)).all("section")) == 9


def test_a_folder_without_a_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is no run folder"):
        write_report(tmp_path)


def test_a_run_that_is_still_going_on_is_called_so(tmp_path: Path) -> None:
    tracker, run = JsonlTracker(), run_info(tmp_path)
    tracker.start(run)
    play(tracker, run, last=1)
    assert "There is no result yet" in Page(write_report(tmp_path)).text


def test_one_member_is_a_report_too(tmp_path: Path) -> None:
    tracker, run = JsonlTracker(), run_info(tmp_path, population=1, generations=1, updates=1)
    tracker.start(run)
    write_rest(tmp_path, play(tracker, run))
    assert len(Page(write_report(tmp_path)).all("section")) == 9


def test_too_many_transcripts_are_thinned_out_and_counted(run_folder: Path) -> None:
    before = len(read_jsonl(run_folder / "episodes.jsonl"))
    add_episodes(run_folder, *({"task": task, "turns": []} for task in range(1000)))
    page = Page(write_report(run_folder))
    shown = page.all("details", class_="episode")
    assert len(shown) == EMBEDDED
    assert f"{EMBEDDED} of {before + 1000} transcripts; {before + 1000 - EMBEDDED} were left out" in page.text
    assert {has["data-generation"] for has in shown} == {str(generation) for generation in range(1, 7)}


def test_a_long_text_is_cut_and_says_so(run_folder: Path) -> None:
    add_episodes(run_folder, {"turns": [{"observation": "x" * 5_000, "action": "up"}] * 100})
    text = Page(write_report(run_folder)).text
    assert "… 1000 more characters" in text and "40 more turns are in episodes.jsonl" in text


def test_thinning_takes_every_member_and_generation_in_turn() -> None:
    episodes = [
        {"generation": g, "member": m, "split": "eval", "n": n} for g in range(5) for m in range(4) for n in range(9)
    ]
    kept = spread(episodes, 40)
    assert len(kept) == 40 and {(each["generation"], each["member"]) for each in kept} == {
        (g, m) for g in range(5) for m in range(4)
    }
    assert {each["generation"] for each in spread(episodes, 10)} == set(range(5))
    assert spread(episodes, 500) == episodes


def test_a_long_curve_is_averaged_down() -> None:
    points = [(float(x), 1.0 if x % 2 else 3.0) for x in range(10_000)]
    drawing = line_chart("loss", [Series("member 0", points, (), 0)], "update", (0.0, 4.0))
    path = re.search(r'points="([^"]*)"', drawing)
    assert path and len(path[1].split()) <= 300
    assert len({point.split(",")[1] for point in path[1].split()}) == 1  # the mean of 1 and 3, everywhere


def test_text_hyperparameters_are_drawn_by_name() -> None:
    drawing = line_chart(
        "schedule", [Series("member 0", [(1, 0), (2, 1)], (), 0)], "generation", (-0.5, 1.5), labels=["cosine", "flat"]
    )
    assert ">cosine<" in drawing and ">flat<" in drawing


def test_nothing_to_draw_is_no_drawing() -> None:
    assert line_chart("loss", [Series("member 0", [])], "update") == ""


def test_an_older_report_is_replaced(run_folder: Path) -> None:
    (run_folder / "report.html").write_text("old")
    write_report(run_folder)
    assert "old" != (run_folder / "report.html").read_text()
    assert not [path for path in run_folder.iterdir() if path.name.startswith(".")]
