"""How numbers are said in sentences."""


def counted(count: int, word: str, plural: str | None = None) -> str:
    """A number with its word: `1 row`, `2,000 rows`. `plural` is where an `s` does not make it."""
    return f"{count:,} {word if count == 1 else plural or word + 's'}"


def span(first: int, last: int, word: str) -> str:
    """Neighbours by their first and last: `snapshot 3`, `snapshots 3 to 7`."""
    return f"{word} {first}" if first == last else f"{word}s {first} to {last}"
