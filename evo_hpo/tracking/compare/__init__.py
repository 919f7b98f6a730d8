"""Runs side by side: `arms` which runs are repeats of one setting, `statistics` over them, `page` the HTML, `table`."""

from evo_hpo.tracking.compare.arms import Arm, arms_of
from evo_hpo.tracking.compare.page import write_comparison
from evo_hpo.tracking.compare.table import print_table

__all__ = ["Arm", "arms_of", "print_table", "write_comparison"]
