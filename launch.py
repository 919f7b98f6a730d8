"""`python launch.py [key=value …]`: compose the config, check it, run it. `resume=<run folder>` goes on with a run."""

from __future__ import annotations

import sys

from evo_hpo.cli.launch import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
