import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evo_hpo.tracking.statistics import gain, wilson


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        # (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n) with z = 1.96, worked out apart from the code
        (0, 10, 0.0, 0.277540),
        (10, 10, 0.722460, 1.0),
        (5, 10, 0.236590, 0.763410),
        (81, 263, 0.255288, 0.366208),  # Newcombe 1998, table I: 0.2553 to 0.3662
        (15, 148, 0.062387, 0.160531),  # the same: 0.0624 to 0.1605
    ],
)
def test_wilson_gives_the_textbook_interval(successes: int, n: int, low: float, high: float) -> None:
    rate, got_low, got_high = wilson(successes, n)
    assert rate == successes / n
    assert (got_low, got_high) == pytest.approx((low, high), abs=6e-5)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_holds_the_rate_and_stays_in_range(case: tuple[int, int]) -> None:
    rate, low, high = wilson(*case)
    assert 0 <= low <= rate <= high <= 1
    assert low < high


def test_without_trials_nothing_is_known() -> None:
    rate, low, high = wilson(0, 0)
    assert math.isnan(rate) and (low, high) == (0, 1)


def test_more_successes_than_trials_is_an_error() -> None:
    with pytest.raises(ValueError, match="11 successes out of 10"):
        wilson(11, 10)


def test_gain_gives_newcombes_interval() -> None:
    # Newcombe 1998, table II, method 10: 56/70 - 48/80 = 0.2 with 0.0524 to 0.3339
    assert gain(wilson(56, 70), wilson(48, 80)) == pytest.approx((0.2, 0.0524, 0.3339), abs=6e-5)
