"""A run folder as one HTML file: `data` reads it, the others draw it, `page` joins what they drew."""

from evo_hpo.tracking.report.page import write_report

__all__ = ["write_report"]
