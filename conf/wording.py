"""How numbers are written in sentences."""


def counted(count: int, word: str, plural: str | None = None) -> str:
    """A number with its noun: `1 row`, `2,000 rows`. `plural` is given if it is not the noun with an `s`."""
    return f"{count:,} {word if count == 1 else plural or word + 's'}"


def span(first: int, last: int, word: str) -> str:
    """A range by its first and last number: `snapshot 3`, `snapshots 3 to 7`."""
    return f"{word} {first}" if first == last else f"{word}s {first} to {last}"


def age_text(seconds: int) -> str:
    """The text of a duration in whole units: days, hours or minutes if the duration has at least two of them, else
    seconds.
    """
    for name, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:,} {name}s"
    return "less than a second" if seconds < 1 else f"{seconds} second{'' if seconds == 1 else 's'}"


def shortened(text: str, most: int = 100) -> str:
    """The text, or its beginning where it is longer than a message needs."""
    return text if len(text) <= most else f"{text[:most]}…"
