"""Runs side by side: `arms` which are repeats, `labels` what to call them, `statistics` of them, `page` and `table`."""

from evo_hpo.tracking.compare.arms import Arm, arms_of
from evo_hpo.tracking.compare.page import write_comparison
from evo_hpo.tracking.compare.table import print_table

__all__ = ["Arm", "arms_of", "print_table", "write_comparison"]
