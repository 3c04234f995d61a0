r"""Dates and times of RFC 3339, and durations of its appendix A, as expressions.

Days are those of the Gregorian calendar, from year 0000 on. A second 60 is a leap second: the last one of a day in
UTC (section 5.7). In a `date-time` it is, as there, at the end of June or December. Appendix A's letters are in
upper case, as in ISO 8601; those of dates and times may be in lower case (section 5.6).
"""

from __future__ import annotations

_LONG_MONTH = "(?:0[13578]|1[02])"
_SHORT_MONTH = "(?:0[469]|11)"
_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"

DATE = (
    f"(?:[0-9]{{4}}-(?:(?:{_LONG_MONTH}|{_SHORT_MONTH})-(?:0[1-9]|[12][0-9]|30)|{_LONG_MONTH}-31"
    f"|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP_YEAR}-02-29)"
)

_HOUR = "(?:[01][0-9]|2[0-3])"
_MINUTE = "[0-5][0-9]"
_FRACTION = r"(?:\.[0-9]+)?"
_PLAIN_TIME = f"{_HOUR}:{_MINUTE}:{_MINUTE}{_FRACTION}(?:[Zz]|[+-]{_HOUR}:{_MINUTE})"


def _one_of(pairs: list[tuple[str, str]], text: str) -> str:
    """A look-ahead: `text` holds for one of the pairs, which are put in place of its `@` and `#`."""
    return "(?=" + "|".join(text.replace("@", first).replace("#", second) for first, second in pairs) + ")"


def _leap_west() -> str:
    """Leap seconds where the offset has a minus: it and the local time make 23:59 together, digit by digit but
    for the hours."""
    hours = [(f"{hour:02}", f"{23 - hour:02}") for hour in range(24)]
    tens = [(str(digit), str(5 - digit)) for digit in range(6)]
    ones = [(str(digit), str(9 - digit)) for digit in range(10)]
    return (
        _one_of(hours, f"@:..:60{_FRACTION}-#:..$")
        + _one_of(tens, f"..:@.:60{_FRACTION}-..:#.$")
        + _one_of(ones, f"..:.@:60{_FRACTION}-..:.#$")
        + f"{_HOUR}:{_MINUTE}:60{_FRACTION}-{_HOUR}:{_MINUTE}"
    )


def _leap_east() -> str:
    """Leap seconds where the offset has a plus: it is the local time and a minute. Not +00:00."""
    same = [(f"{hour:02}", f"{hour:02}") for hour in range(24)]
    later = [(f"{hour:02}", f"{hour + 1:02}") for hour in range(23)]
    minutes = [(f"{minute:02}", f"{minute + 1:02}") for minute in range(59)]
    return (
        f"(?:{_one_of(same, f'@:..:60{_FRACTION}.#:..$')}{_one_of(minutes, f'..:@:60{_FRACTION}...:#$')}"
        f"|{_one_of(later, f'@:59:60{_FRACTION}.#:00$')})"
        f"{_HOUR}:{_MINUTE}:60{_FRACTION}[+]{_HOUR}:{_MINUTE}"
    )


_LEAP_HERE = f"23:59:60{_FRACTION}(?:[Zz]|[+]00:00)|{_leap_west()}"

TIME = f"(?:{_PLAIN_TIME}|{_LEAP_HERE}|{_leap_east()})"

# West of Greenwich it is still the same day. East of it the next one has begun.
DATE_TIME = (
    f"(?:{DATE}[Tt]{_PLAIN_TIME}"
    f"|[0-9]{{4}}-(?:06-30|12-31)[Tt](?:{_LEAP_HERE})|[0-9]{{4}}-(?:07|01)-01[Tt]{_leap_east()})"
)

_TIME_PART = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_DATE_PART = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
DURATION = f"P(?:{_DATE_PART}(?:{_TIME_PART})?|{_TIME_PART}|[0-9]+W)"
