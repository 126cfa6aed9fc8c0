"""Options as values with types. Each is read from its text once, when it is first asked for.

Options that nobody asks for are not read. So a table stays readable even if options that only writers use are invalid.
"""

from collections.abc import Mapping
from typing import Generic, NoReturn, Self, TypeVar, overload

from bucketline.conf.option import Option

T = TypeVar("T")


class Settings:
    """A base class for values with the settings of one topic. Each setting is a member. They cannot be changed."""

    def __init__(self, options: Mapping[str, str]) -> None:
        vars(self)["options"] = options

    options: Mapping[str, str]

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen: {name} cannot be set")


class OptionValue(Generic[T]):
    """A member of `Settings` that is the value of an option, or its default. Raises OptionError that names the key."""

    def __init__(self, option: Option[T]) -> None:
        self.option = option

    def __set_name__(self, owner: type[Settings], name: str) -> None:
        self._name = name

    @overload
    def __get__(self, settings: None, owner: type[Settings]) -> Self: ...

    @overload
    def __get__(self, settings: Settings, owner: type[Settings]) -> T: ...

    def __get__(self, settings: Settings | None, owner: type[Settings]) -> Self | T:
        if settings is None:
            return self
        # Python finds the value in the instance from now on, and does not call this method again.
        value = vars(settings)[self._name] = self.option.get(settings.options)
        return value


class OptionalValue(Generic[T]):
    """A member of `Settings` that is the value of an option without a default; None if the option is not set. Raises
    OptionError that names the key.
    """

    def __init__(self, option: Option[T]) -> None:
        assert option.default is None, f"{option.key} has a default"
        self.option = option

    def __set_name__(self, owner: type[Settings], name: str) -> None:
        self._name = name

    @overload
    def __get__(self, settings: None, owner: type[Settings]) -> Self: ...

    @overload
    def __get__(self, settings: Settings, owner: type[Settings]) -> T | None: ...

    def __get__(self, settings: Settings | None, owner: type[Settings]) -> Self | T | None:
        if settings is None:
            return self
        value = vars(settings)[self._name] = self.option.find(settings.options)
        return value
