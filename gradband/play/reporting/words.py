"""Numbers in words: rates in percent for rewards in [0, 1], plain numbers for others."""

import math


def rate(value: float | None, unit: bool) -> str:
    """A mean reward.

    >>> rate(0.1234, True), rate(0.0512345, True), rate(12.3456, False), rate(None, True)
    ('12.3 %', '5.12 %', '12.3', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{plain(100 * value)} %" if unit else plain(value)


def plain(value: float) -> str:
    """Three digits.

    >>> plain(0.0), plain(0.000123), plain(-1.5), plain(99.96), plain(12345.6)
    ('0', '0.000123', '−1.50', '100', '12346')
    """
    if value == 0:
        return "0"
    digits = min(max(2 - math.floor(math.log10(abs(value) * (1 + 5e-4))), 0), 12)
    return f"{value:.{digits}f}".replace("-", "−")


def loss(value: float | None, unit: bool) -> str:
    """An expected loss; very small ones are only bounded.

    >>> loss(0.0123, True), loss(0.00001, True), loss(0.00001, False)
    ('1.23 %', '< 0.01 %', '0.0000100')
    """
    if unit and value is not None:
        return f"{100 * value:.2f} %" if value >= 1e-4 else "< 0.01 %"
    return rate(value, unit)


def with_error(mean: float, se: float, unit: bool) -> str:
    """A mean with its standard error, as precise as the error allows.

    >>> with_error(0.02345, 0.0086, True), with_error(-1.0, 0.25, False)
    ('2.34 ± 0.86 %', '−1.00 ± 0.25')
    """
    scale = 100 if unit else 1
    mean, se = scale * mean, scale * se
    digits = min(max(1 - math.floor(math.log10(se)), 0), 12) if se > 0 else 2
    return f"{mean:.{digits}f} ± {se:.{digits}f}{' %' if unit else ''}".replace("-", "−")


def span(low: float | None, high: float | None, unit: bool) -> str:
    """An interval.

    >>> span(0.1, 0.25, True), span(1.0, 2.0, False), span(None, None, True)
    ('10.0 to 25.0 %', '1.00 to 2.00', '–')
    """
    if low is None or high is None or math.isnan(low):
        return "–"
    return f"{rate(low, unit).removesuffix(' %')} to {rate(high, unit)}"


def percent(share: float | None) -> str:
    """A share or a probability, never rounded to certainty.

    >>> percent(0.5), percent(0.9999), percent(0.0001), percent(1.0), percent(0.973)
    ('50 %', '> 99.9 %', '< 0.1 %', '100 %', '97.3 %')
    """
    if share is None or math.isnan(share):
        return "–"
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1:
        return "> 99.9 %"
    return f"{100 * share:.3g} %"


def p_value(p: float) -> str:
    """
    >>> p_value(1.0), p_value(0.0321), p_value(1e-9)
    ('p = 1', 'p = 0.032', 'p < 0.0001')
    """
    return "p < 0.0001" if p < 1e-4 else f"p = {p:.2g}"


def count(number: int, one: str, many: str = "") -> str:
    """
    >>> count(1, "decision"), count(12345, "decision")
    ('1 decision', '12 345 decisions')
    """
    return f"{grouped(number)} {one if number == 1 else many or one + 's'}"


def grouped(number: float) -> str:
    return f"{number:,.0f}".replace(",", " ")


def listed(names: list[str]) -> str:
    """
    >>> listed(["a", "b"]), listed(["a", "b", "c", "d", "e"])
    ('a and b', 'a, b, c and 2 others')
    """
    if len(names) > 3:
        rest = len(names) - 3
        names = [*names[:3], f"{rest} other{'s' if rest > 1 else ''}"]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def capital(words: str) -> str:
    """
    >>> capital("an equal split"), capital("UCB1")
    ('An equal split', 'UCB1')
    """
    return words[:1].upper() + words[1:]
