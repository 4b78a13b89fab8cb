"""Durations in configuration files."""

import pytest

from outlast.config.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90.0), ("10m", 600.0), ("1h30m", 5400.0), ("1.5s", 1.5), ("250ms", 0.25), ("2d", 172800.0)],
)
def test_a_duration_is_read_in_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


def test_none_means_no_limit() -> None:
    assert parse_duration("none") is None
    assert parse_duration(" None ") is None


@pytest.mark.parametrize("text", ["10", "", "m", "10 m", "10x", "-5s", "1m-", "ten minutes", "0x10s"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="90s, 10m, 1h30m or none"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["0s", "0ms", "0.0h", "9" * 400 + "s", "100000d"])
def test_no_time_and_time_without_end_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="`none` means no limit"):
        parse_duration(text)
