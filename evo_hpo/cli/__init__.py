"""What can be typed: `run` (the same as launch.py), and commands that look at runs.

main       the commands of `evo-hpo` and `python -m evo_hpo`
launch     overrides -> a checked config -> a run
listing    `list`: groups, options, search spaces
doctor     `doctor`: versions, devices, optional parts
guard      exceptions -> sentences and exit codes
"""
