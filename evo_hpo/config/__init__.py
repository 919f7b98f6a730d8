"""Configuration: what a run may be told, and how it is checked before anything is loaded.

schema      every key, its type and its range
compose     YAML groups and overrides -> one tree of values (Hydra), with where each value came from
build       values -> the typed `Config`, components built from their `_target_`
legality    what must hold between the parts
"""
