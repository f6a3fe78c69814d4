"""Fields of the types without children, with values from the whole range of each type."""

import string

from columns import hexadecimal, integer, text, values, view

UNITS = {"s": "SECOND", "ms": "MILLISECOND", "us": "MICROSECOND", "ns": "NANOSECOND"}
PER_DAY = {"SECOND": 86400, "MILLISECOND": 86400 * 10**3, "MICROSECOND": 86400 * 10**6, "NANOSECOND": 86400 * 10**9}

LETTERS = string.ascii_letters + string.digits + "äß→€😀\"\\"


def _between(low, high, wide=False):
    """Draws integers, the ends of the range more often than chance would."""

    def draw(rng):
        value = rng.choice([low, high, rng.randint(low, high), rng.randint(low, high)])
        return str(value) if wide else value

    return draw


def _bits(bits, signed=True):
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return _between(low, high, bits == 64)


def boolean(name, **rest):
    return values(name, {"name": "bool"}, lambda rng: rng.random() < 0.5, **rest)


def int_(name, bits, signed=True, **rest):
    return values(name, integer(bits, signed), _bits(bits, signed), **rest)


def float_(name, precision, **rest):
    """Multiples of 1/8 are exact in each precision, and in the three decimals that nanoarrow compares."""
    return values(name, {"name": "floatingpoint", "precision": precision}, lambda rng: rng.randint(-800, 800) / 8, **rest)


def decimal(name, bits, precision, scale, **rest):
    largest = 10**precision - 1
    return values(
        name,
        {"name": "decimal", "precision": precision, "scale": scale, "bitWidth": bits},
        lambda rng: str(rng.choice([0, 1, -1, largest, -largest, rng.randint(-largest, largest)])),
        **rest,
    )


def date(name, unit, **rest):
    wide = unit == "MILLISECOND"
    days = _between(-719162, 2932896)  # years 1 to 9999
    return values(name, {"name": "date", "unit": unit}, lambda rng: str(days(rng) * 86400000) if wide else days(rng), **rest)


def time(name, unit, **rest):
    bits = 32 if unit in ("SECOND", "MILLISECOND") else 64
    return values(name, {"name": "time", "unit": unit, "bitWidth": bits}, _between(0, PER_DAY[unit] - 1, bits == 64), **rest)


def timestamp(name, unit, timezone=None, **rest):
    type = {"name": "timestamp", "unit": unit}
    if timezone is not None:
        type["timezone"] = timezone
    return values(name, type, _bits(64), **rest)


def duration(name, unit, **rest):
    return values(name, {"name": "duration", "unit": unit}, _bits(64), **rest)


def interval(name, unit, **rest):
    draw = {
        "YEAR_MONTH": _bits(32),
        "DAY_TIME": lambda rng: {"days": _bits(32)(rng), "milliseconds": _bits(32)(rng)},
        # The nanoseconds are a number in JSON, so they stay where float64 is exact.
        "MONTH_DAY_NANO": lambda rng: {
            "months": _bits(32)(rng),
            "days": _bits(32)(rng),
            "nanoseconds": _between(-(1 << 53) + 1, (1 << 53) - 1)(rng),
        },
    }[unit]
    return values(name, {"name": "interval", "unit": unit}, draw, **rest)


def _text(longest):
    return lambda rng: "".join(rng.choices(LETTERS, k=rng.randint(0, longest))).encode()


def _bytes(longest):
    return lambda rng: rng.randbytes(rng.randint(0, longest))


def utf8(name, wide=False, **rest):
    return text(name, _text(9), bytes.decode, "utf8", wide, **rest)


def binary(name, wide=False, **rest):
    return text(name, _bytes(9), hexadecimal, "binary", wide, **rest)


def utf8_view(name, **rest):
    return view(name, _text(30), bytes.decode, "utf8", **rest)


def binary_view(name, **rest):
    return view(name, _bytes(30), hexadecimal, "binary", **rest)


def fixed_size_binary(name, width, **rest):
    return values(name, {"name": "fixedsizebinary", "byteWidth": width}, lambda rng: hexadecimal(rng.randbytes(width)), **rest)
