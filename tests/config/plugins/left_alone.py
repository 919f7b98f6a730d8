"""No test may ever import this module: no config allows it."""

raise AssertionError("left_alone was imported")
