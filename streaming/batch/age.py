"""How old something is, in words for people."""


def age_text(seconds: int) -> str:
    """A duration in its largest whole unit."""
    for name, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:,} {name}s"
    return "less than a second" if seconds < 1 else f"{seconds} second{'' if seconds == 1 else 's'}"
