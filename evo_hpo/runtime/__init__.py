"""Runs: `run` start or resume · `training` the loop · `evaluate` fitness · `tasks` · `checkpoints` · `folder` · `processes`"""
