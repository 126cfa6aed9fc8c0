"""Base classes for parsed options. Each option is parsed once, when it is first used.

An option that is not used is not parsed. So a table can still be read if options that only writers use are not valid.
"""

from collections.abc import Mapping
from typing import Generic, NoReturn, Self, TypeVar, overload

from bucketline.conf.option import Option

T = TypeVar("T")


class Settings:
    """Base class of immutable objects with the parsed options of one topic. Each attribute is an option."""

    def __init__(self, options: Mapping[str, str]) -> None:
        vars(self)["options"] = options

    options: Mapping[str, str]

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen: {name} cannot be set")


class OptionValue(Generic[T]):
    """An attribute of `Settings`: the value of an option, or its default. Reading the attribute raises OptionError,
    which names the option, if the text cannot be parsed.
    """

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
        # From now on, Python finds the value in the instance and does not call this method again.
        value = vars(settings)[self._name] = self.option.get(settings.options)
        return value


class OptionalValue(Generic[T]):
    """An attribute of `Settings`: the value of an option without a default; None if the option is not set. Reading the
    attribute raises OptionError, which names the option, if the text cannot be parsed.
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
