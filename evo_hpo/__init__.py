"""Populations of LoRA agents that learn by multi-turn RL while their hyperparameters evolve.

`config` what a run is · `policy` who acts · `rollout` episodes · `learner` updates · `evolution` who survives ·
`runtime` runs from start to end · `tracking` what a person sees of them · `cli`
"""

import os

# Read when torch is first imported: how long OpenMP's threads spin for work before they sleep. The default, about ten
# times more, gains nothing on an idle machine and made runs several times slower on a shared one.
os.environ.setdefault("GOMP_SPINCOUNT", "30000")
