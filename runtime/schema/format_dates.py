r"""Dates and times of RFC 3339, and durations of its appendix A, as expressions.

Days are those of the Gregorian calendar, from year 0000 on. A second 60 is a leap second: the last one of a
day in UTC (section 5.7). In a `date-time` it is, as there, at the end of June or December. The letters of
appendix A are in upper case, as in ISO 8601; those of dates and times may be in lower case (section 5.6).
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


def _if(options: list[str]) -> str:
    """A look-ahead: one of the options follows."""
    return f"(?={'|'.join(options)})"


def _leap_west() -> str:
    """Leap seconds where the offset has a minus: the local time and it make 23:59 together.

    Each digit of the time says what the same digit of the offset is; the first needs its neighbour for that.
    """
    end = "[^-]*-"
    tens = _if([f"0[0-3]{end}2", f"(?:0[4-9]|1[0-3]){end}1", f"(?:1[4-9]|2[0-3]){end}0"])
    ones = _if([f"{digit}{end}.{(3 - digit) % 10}" for digit in range(10)])
    minute_tens = _if([f"{digit}{end}...{5 - digit}" for digit in range(6)])
    minute_ones = _if([f"{digit}{end}....{9 - digit}" for digit in range(10)])
    return f"{tens}[0-2]{ones}[0-9]:{minute_tens}[0-5]{minute_ones}[0-9]:60{_FRACTION}-{_HOUR}:{_MINUTE}"


def _leap_east() -> str:
    """Leap seconds where the offset has a plus: it is the local time and a minute, before midnight."""
    end = "[^+]*[+]"
    tens = [f"{digit}(?:[0-8]|9:(?:[0-4]|5[0-8])){end}{digit}" for digit in range(2)]
    tens += [f"2[0-3]{end}2"]
    carried = [f"{digit}9:59{end}{digit + 1}" for digit in range(2)]
    ones = [f"{digit}:(?:[0-4]|5[0-8]){end}.{digit}" for digit in range(10)]
    ones += [f"{digit}:59{end}.{(digit + 1) % 10}" for digit in range(10)]
    minute_tens = [f"{digit}[0-8]{end}...{digit}" for digit in range(6)]
    minute_tens += [f"{digit}9{end}...{(digit + 1) % 6}" for digit in range(6)]
    minute_ones = [f"{digit}{end}....{(digit + 1) % 10}" for digit in range(10)]
    return (
        f"{_if(tens + carried)}[0-2]{_if(ones)}[0-9]:{_if(minute_tens)}[0-5]{_if(minute_ones)}[0-9]"
        f":60{_FRACTION}[+]{_HOUR}:{_MINUTE}"
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
