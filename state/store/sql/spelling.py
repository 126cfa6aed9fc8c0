"""Names of columns, in which SQL ignores upper and lower case."""

from collections.abc import Collection, Sequence

from bucketline.state.sql.dialect import refused


def spellings(name: str, columns: Collection[str]) -> list[str]:
    """The columns that a name can mean: the one of that name, or else all that differ from it in case only."""
    return [name] if name in columns else [c for c in columns if c.lower() == name.lower()]


def spelled(names: Sequence[str], columns: Collection[str]) -> list[str]:
    """Names as the columns spell them; those that mean no column stay as they are.

    Raises OptionError for a name that can mean several columns.
    """
    resolved = []
    for name in names:
        meant = spellings(name, columns) or [name]
        if len(meant) > 1:
            raise refused(f"column '{name}' can mean {', '.join(meant)}; write which one", column=name)
        resolved.append(meant[0])
    return resolved
