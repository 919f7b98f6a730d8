"""Exceptions -> what a person reads, and the exit code."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable

from evo_hpo.config.errors import ConfigError, UserError

WRONG_INPUT = 2
INTERRUPTED = 130  # as a shell counts SIGINT
BROKEN_PIPE = 141  # and SIGPIPE
PATIENCE = 10.0  # seconds that a quiet process gives the one that speaks, as the launcher ends all with the first


def guarded(action: Callable[[], None], full_errors: bool = False, quiet: bool = False) -> int:
    """Do `action` and return the exit code of the process.

    A `UserError` is printed as its sentences; whatever else is raised is a defect and keeps its traceback.

    Args:
        full_errors: print the traceback of a `UserError` as well.
        quiet: print nothing, because another process of the same run does.
    """
    try:
        action()
    except UserError as error:
        if full_errors:
            traceback.print_exc()
        if quiet:
            time.sleep(PATIENCE)
        else:
            sentences = error.problems if isinstance(error, ConfigError) else str(error).splitlines()
            print("\n".join(f"error: {sentence}" for sentence in sentences), file=sys.stderr)
        return WRONG_INPUT
    except BrokenPipeError:  # whoever read our output (`| head`) has gone; nothing more can be said
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt as error:
        print(f"stopped by {str(error) or 'Ctrl-C'}", file=sys.stderr)
        return INTERRUPTED
    return 0
