"""The one typed schema: every key a run can have, its type and its range. Pydantic checks it, Hydra composes it.

A field typed `Component` is a YAML node with a `_target_`: a dataclass of an allowed package whose fields are the keys
of the node. Defaults live in `conf/`, and only there; what stands here without a default must be given by a YAML.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt, MinLen

Component = Any  # built from its `_target_`; which base class it must have is in `build.COMPONENTS`
Positive = Annotated[int, Gt(0)]
Measured = Annotated[int, Gt(0), Le(100_000)]  # at 100 000 tasks an interval is 0.6 points wide; no one needs more
Fraction = Annotated[float, Ge(0), Le(1)]


@dataclass(frozen=True)
class LoraConfig:
    rank: Annotated[int, Gt(0), Le(1024)]  # beyond that an adapter is larger than most layers it changes
    alpha: Annotated[float, Gt(0)]
    target_modules: Annotated[list[str], MinLen(1)]  # suffixes of linear modules, or ["all-linear"]
    start: str | None  # a peft adapter folder that every member starts from; it is then the reference as well


@dataclass(frozen=True)
class ModelConfig:
    path: str  # a folder, a hub name, or `builtin:tiny`
    gguf_file: str | None  # file name inside `path`, for GGUF checkpoints
    init: Literal["pretrained", "random"]  # random: the architecture of `path` with fresh weights
    train: Literal["adapters", "base"]  # base: full-parameter training, for a population of one
    instructions: bool  # put the environment's instructions into the system message
    chat_template: str | None  # Jinja template instead of the tokenizer's own
    gradient_checkpointing: bool
    lora: LoraConfig


@dataclass(frozen=True)
class RolloutConfig:
    tasks: Positive  # tasks (groups) per member and update
    ahead: Positive  # updates whose episodes are sampled at once; the last of them learns from a policy ahead - 1 old
    group_size: Positive  # episodes per task
    slots: Positive  # episodes decoded at once, per member
    max_action_tokens: Positive
    max_context: Positive  # tokens of one episode, observations included
    temperature: Annotated[float, Gt(0)]
    top_k: Annotated[int, Ge(0)]  # 0: off
    top_p: Annotated[float, Gt(0), Le(1)]  # 1: off
    threads: Positive  # environment worker threads
    step_timeout: Annotated[float, Gt(0)]  # seconds one reset or step may take


@dataclass(frozen=True)
class EvaluationConfig:
    tasks: Measured  # common held-out tasks on which fitness is measured after every generation
    repeats: Measured  # episodes per task
    final_tasks: Measured  # tasks never trained or selected on, for the result
    everyone: bool  # measure the result of every member, not of the best one alone
    temperature: Annotated[float, Gt(0)]
    held_out: Annotated[float, Gt(0), Lt(1)]  # share of distinct tasks kept from training (half fitness, half final)


@dataclass(frozen=True)
class BudgetConfig:
    """What the whole run may cost, all members together; null is no limit."""

    policy_tokens: Positive | None  # sampled, evaluations included
    environment_turns: Positive | None  # evaluations included
    updates: Positive | None  # optimiser updates of each member
    seconds: Annotated[float, Gt(0)] | None


@dataclass(frozen=True)
class Dimension:
    """One hyperparameter that evolves."""

    type: Literal["float", "int", "categorical"]
    low: float | None = None
    high: float | None = None
    log: bool = False
    choices: list[Any] | None = None
    relative: bool = False  # low and high are multiples of the config's own value
    optional: bool = False  # left out where the run's algorithms have no such key, or a relative one at 0
    when: dict[str, Annotated[list[str], MinLen(1)]] | None = (
        None  # group of `species` -> options with which it evolves
    )


@dataclass(frozen=True)
class SpeciesParts:
    """What the members of one species have in place of the run's own."""

    choices: dict[str, str]  # group -> option
    algorithm: Component
    reward: Component
    granularity: Component


@dataclass(frozen=True)
class SpeciesConfig:
    """Options of whole groups between which members differ from birth; null: all have the run's own."""

    algorithm: Annotated[list[str], MinLen(1)] | None
    reward: Annotated[list[str], MinLen(1)] | None
    granularity: Annotated[list[str], MinLen(1)] | None
    parts: dict[str, SpeciesParts]  # name of a species -> what composing made of its options


@dataclass(frozen=True)
class EvolutionConfig:
    population: Positive
    strategy: Component  # evo_hpo.evolution.strategies: who is whose parent, what is explored
    space: dict[str, Dimension]  # dotted key of the run's config -> range
    species: SpeciesConfig
    burn_in: Annotated[int, Ge(0)]  # generations before the first selection
    every: Positive  # select after every so many generations
    start_from: str | None  # a run folder or study whose best hyperparameters the first members take
    spread: bool  # draw the first hyperparameters from the space (member 0 keeps the config's own values)


Control = Literal["independent", "selection_only", "mutation_only", "single"]  # what each is: runtime/controls.py


@dataclass(frozen=True)
class SweepConfig:
    controls: list[Literal[Control, "all"]]  # run as soon as the run itself is finished, and compared with it


@dataclass(frozen=True)
class TrackerConfig:
    console: Literal["auto", "live", "lines", "off"]
    episodes: Annotated[int, Ge(0)]  # transcripts kept per generation and member
    report: bool
    optuna: bool
    wandb: Literal["auto", "offline", "online", "disabled"]  # auto: online if a key is set, else offline
    wandb_project: str
    wandb_entity: str | None
    tags: list[str]


@dataclass(frozen=True)
class StageConfig:
    algorithm: Component
    generations: Positive
    updates: Positive  # optimiser updates per generation
    evolve: bool  # select and mutate between the generations of this stage


@dataclass(frozen=True)
class PipelineConfig:
    order: Annotated[list[str], MinLen(1)]  # names of the stages, first to last
    stages: dict[str, StageConfig]


@dataclass(frozen=True)
class LearnerConfig:
    micro_tokens: Positive  # tokens in one forward and backward pass, all members together
    logit_chunk: Positive  # trained tokens whose logits are alive at once


@dataclass(frozen=True)
class CheckpointConfig:
    keep: Positive  # newest generations kept on disk
    free_mb: Annotated[int, Ge(0)]  # free space that must be there before training starts, in MB


@dataclass(frozen=True)
class Config:
    name: str
    seed: Annotated[int, Ge(0)]
    device: str  # auto | cpu | cuda | cuda:1 …
    precision: Literal["auto", "float32", "bfloat16"]
    threads: Annotated[int, Ge(0)]  # CPU threads of torch; 0 leaves torch's own choice
    plugins: list[str]  # further packages whose classes a `_target_` may name
    run_dir: str  # where the run folder is made
    on_alarm: Literal["warn", "stop", "replace"]  # replace: the member loses the next selection
    algorithm: Component
    reward: Component
    granularity: Component
    env: Component
    model: ModelConfig
    rollout: RolloutConfig
    evaluation: EvaluationConfig
    budget: BudgetConfig
    learner: LearnerConfig
    evolution: EvolutionConfig
    sweep: SweepConfig
    tracker: TrackerConfig
    pipeline: PipelineConfig
    checkpoint: CheckpointConfig
