"""A run folder as one HTML file: `data` reads it, `charts`, `lineage` and `episodes` draw it, `page` joins them."""

from evo_hpo.tracking.report.page import write_report

__all__ = ["write_report"]
