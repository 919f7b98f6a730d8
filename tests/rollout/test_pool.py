"""The pool: order, errors and time limits."""

from __future__ import annotations

import threading
import time

from evo_hpo.rollout.pool import EnvironmentPool


def test_results_come_back_in_order_whatever_finishes_first() -> None:
    def call(i: int) -> int:
        time.sleep(0.02 if i % 2 else 0.0)
        return i

    outcomes = EnvironmentPool(threads=3, limit=5).run([lambda i=i: call(i) for i in range(10)])  # type: ignore[misc]
    assert [outcome.value for outcome in outcomes] == list(range(10))


def test_a_raised_error_is_an_outcome() -> None:
    def boom() -> None:
        raise OSError("no disk")

    outcomes = EnvironmentPool(threads=2, limit=5).run([boom, lambda: 1])
    assert isinstance(outcomes[0].error, OSError) and outcomes[1].value == 1


def test_calls_behind_a_hanging_one_are_still_made() -> None:
    release = threading.Event()
    pool = EnvironmentPool(threads=1, limit=0.2)
    outcomes = pool.run([lambda: 0, lambda: release.wait(30), lambda: 2, lambda: release.wait(30), lambda: 4])
    release.set()
    assert [outcome.timed_out for outcome in outcomes] == [False, True, False, True, False]
    assert [outcomes[i].value for i in (0, 2, 4)] == [0, 2, 4]
    assert pool.left_behind == 2


def test_many_short_calls_do_not_add_up_to_a_timeout() -> None:
    outcomes = EnvironmentPool(threads=1, limit=0.2).run([lambda: time.sleep(0.05)] * 10)
    assert not any(outcome.timed_out for outcome in outcomes)


def test_no_calls_give_no_outcomes() -> None:
    assert EnvironmentPool(threads=2, limit=1).run([]) == []
