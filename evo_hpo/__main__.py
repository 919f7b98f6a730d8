"""`python -m evo_hpo <command>`."""

from __future__ import annotations

import sys

from evo_hpo.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
