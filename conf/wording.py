"""Formats numbers, durations and long texts for messages."""


def counted(count: int, word: str, plural: str | None = None) -> str:
    """Returns a number with its noun: `1 row`, `2,000 rows`. `plural` is needed if the plural is not the noun with an
    `s`.
    """
    return f"{count:,} {word if count == 1 else plural or word + 's'}"


def span(first: int, last: int, word: str) -> str:
    """Returns a range of numbers as text: `snapshot 3`, `snapshots 3 to 7`."""
    return f"{word} {first}" if first == last else f"{word}s {first} to {last}"


def age_text(seconds: int) -> str:
    """Returns a duration as text in whole units. The unit is days, hours or minutes: the largest unit that fits
    into the duration at least twice. A shorter duration is in seconds.
    """
    for name, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:,} {name}s"
    return "less than a second" if seconds < 1 else f"{seconds} second{'' if seconds == 1 else 's'}"


def shortened(text: str, most: int = 100) -> str:
    """Returns the text, or only its beginning if it has more than `most` characters."""
    return text if len(text) <= most else f"{text[:most]}…"
