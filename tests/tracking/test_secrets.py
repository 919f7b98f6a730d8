from typing import Any

import pytest

from evo_hpo.tracking.secrets import REMOVED, is_secret_name, learn, scrub


@pytest.mark.parametrize(
    "name",
    "WANDB_API_KEY HF_TOKEN OPENAI_API_KEY AWS_SECRET_ACCESS_KEY key token password db_password judgeApiKey "
    "client_secret access_token wandb-key Authorization credentials".split(),
)
def test_names_of_secrets_are_recognised(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    "max_action_tokens policy_tokens state_key task_key eos_token tokens keys tokenizer keyboard granularity "
    "logit_chunk MAX_TOKENS".split(),
)
def test_ordinary_names_are_left_alone(name: str) -> None:
    assert not is_secret_name(name)


def test_secrets_are_removed_at_any_depth_and_the_rest_stays() -> None:
    config: dict[str, Any] = {
        "judge": {"api_key": "abc", "model": "m", "headers": [{"Authorization": "Bearer x"}]},
        "rollout": {"max_action_tokens": 8, "state_key": "grid"},
        "secrets": {"one": "a"},
        "token": 0.5,
        "wandb_api_key": None,
    }
    assert scrub(config) == {
        "judge": {"api_key": REMOVED, "model": "m", "headers": [{"Authorization": REMOVED}]},
        "rollout": {"max_action_tokens": 8, "state_key": "grid"},
        "secrets": REMOVED,
        "token": 0.5,
        "wandb_api_key": None,
    }
    assert config["judge"]["api_key"] == "abc"  # the caller's own copy is not touched


def test_values_of_secret_environment_variables_are_removed_wherever_they_stand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", "letmein-1234")
    monkeypatch.setenv("SHORT_KEY", "rl")
    monkeypatch.setenv("EXAMPLE_NAME", "frozen_lake")
    assert scrub({"a": "letmein-1234", "b": ["x=letmein-1234&y"], "c": "frozen_lake", "d": "curl", "e": "rl"}) == {
        "a": REMOVED,
        "b": [f"x={REMOVED}&y"],
        "c": "frozen_lake",
        "d": "curl",
        "e": REMOVED,
    }


def test_overrides_urls_and_known_formats_are_cleaned() -> None:
    openai, hub = "sk-" + "a1" * 12, "hf_" + "b2" * 12
    cleaned = scrub(
        {"overrides": ["+judge.api_key=abc", "seed=1"], "url": "https://me:pw@host/x", "note": f"{openai} {hub}"}
    )
    assert cleaned == {
        "overrides": [f"+judge.api_key={REMOVED}", "seed=1"],
        "url": f"https://{REMOVED}@host/x",
        "note": f"{REMOVED} {REMOVED}",
    }


def test_dotted_keys_are_judged_by_their_last_part() -> None:
    assert scrub({"judge.api_key": "abc", "token.lr": "1e-3"}) == {"judge.api_key": REMOVED, "token.lr": "1e-3"}


def test_a_secret_of_the_config_is_removed_from_what_is_said_of_it_later() -> None:
    text = {"error": "the server refused correct-horse"}
    assert scrub(text) == text
    learn({"env": {"api_key": "correct-horse", "max_turns": 8, "token": "abc"}})
    assert scrub(text) == {"error": f"the server refused {REMOVED}"}
    assert scrub({"letters": "abc"}) == {"letters": "abc"}, "too short to be looked for"
