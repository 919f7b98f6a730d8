"""Regular expressions that stand in a config."""

from __future__ import annotations

import re


def compiled(pattern: str, key: str) -> re.Pattern[str]:
    """`pattern`, ready for use.

    Raises:
        ValueError: it is no regular expression; the sentence names `key` and the place.
    """
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(
            f"{key} is {pattern!r}, which is no regular expression: {error}; a character that is meant as it stands "
            "takes a backslash before it"
        ) from error
