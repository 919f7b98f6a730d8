"""Populations of LoRA agents that learn by multi-turn RL while their hyperparameters evolve.

`config` what a run is · `policy` who acts · `rollout` episodes · `learner` updates · `evolution` who survives ·
`runtime` runs from start to end · `tracking` what a person sees of them · `cli`
"""

import os

# Read when torch is first imported: threads that wait for work sleep instead of spinning, which made runs several
# times slower on a shared machine.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
