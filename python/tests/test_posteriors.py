"""Posteriors, and decisions by the costs of mistakes."""

from __future__ import annotations

from typing import Any

import pytest

import ebbtide

START = 1_700_000_000
PRIOR = 1e-4


@pytest.mark.parametrize("rate", [0.1, 1.0, 10.0, 100])
def test_a_posterior_of_a_window_in_time_follows_from_the_rate(path: str, rate: float) -> None:
    spec = ebbtide.Fingerprint(window="10m", fpr=0.3)
    with ebbtide.open(path, spec, hash_seed=1) as seen, ebbtide.Reader(path) as reader:
        for number in range(6000):
            seen.insert(f"key {number}", time=START + number / 10)
        now = START + 600
        others = [f"other {number}" for number in range(10_000)]
        by_chance = sum(seen.contains_all(others, time=now)) / len(others)
        assert 0.001 < by_chance < 0.3
        absent = next(key for key in others if not seen.contains(key, time=now))
        # That the key came in the window: before the filter says yes, and after that.
        before = 1 - (1 - PRIOR) ** (rate * 600)
        expected = before / (before + (1 - before) * by_chance)
        for handle in (seen, reader):
            assert handle.posterior(absent, PRIOR, rate=rate, time=now) == 0
            for key in ("key 5999", "key 3000"):
                found = handle.posterior(key, PRIOR, rate=rate, time=now)
                assert found == pytest.approx(expected, abs=0.06)
                for factor, answer in ((0.8, True), (1.2, False)):
                    decided = handle.decide(
                        key,
                        PRIOR,
                        false_positive=factor * found,
                        false_negative=1 - found,
                        rate=rate,
                        time=now,
                    )
                    assert decided is answer


def test_a_window_in_time_needs_a_rate_and_one_of_inserts_does_not(path: str) -> None:
    with ebbtide.open(path, ebbtide.TimeLimited("10m")) as seen:
        seen.insert("a")
        for rate in (None, 0, -1.0, float("nan"), float("inf")):
            with pytest.raises(ebbtide.BadParameter, match="inserts a second") as raised:
                seen.posterior("a", PRIOR, rate=rate)
            assert raised.value.parameter == "rate"
            with pytest.raises(ebbtide.BadParameter, match="inserts a second"):
                seen.decide("a", PRIOR, false_positive=1, false_negative=1, rate=rate)
        wrong: Any
        for wrong in ("10", True, [1]):
            with pytest.raises(TypeError, match="rate: expected a number"):
                seen.posterior("a", PRIOR, rate=wrong)
        assert seen.posterior("a", PRIOR, rate=10) > 0.9
    with ebbtide.open(f"{path} of inserts", ebbtide.Fingerprint(last=1000)) as seen:
        seen.insert("a")
        assert 0.9 < seen.posterior("a", PRIOR) == seen.posterior("a", PRIOR, rate=10)
