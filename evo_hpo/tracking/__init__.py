"""Everything a person sees of a run.

`core` says what a run tells its trackers; `jsonl`, `console`, `optuna` and `wandb` are trackers; `alarms` finds what
goes wrong; `transcripts` makes episodes readable; `report` turns a run folder into one HTML file, `compare` several;
`statistics` gives every rate its interval; `secrets` keeps keys and passwords out of all of it.
"""
