"""Dataclasses whose fields are keyword arguments, also in Python 3.9, whose own have none."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    # A part of what type checkers know; nothing is installed for it.
    from typing_extensions import dataclass_transform as dataclass_transform
else:

    def dataclass_transform(**_settings):
        """Says to type checkers what subclasses are; does nothing."""
        return lambda base: base


#: Objects of which a program may hold many have no ``__dict__``, where Python can make such.
SLOTS: dict[str, bool] = {"slots": True} if sys.version_info >= (3, 10) else {}


def argument(
    *, default: Any = dataclasses.MISSING, kw_only: Literal[False] = False
) -> Any:
    """Describes a field that may also be given by its position."""
    if sys.version_info >= (3, 10):  # novermin
        return dataclasses.field(default=default, kw_only=kw_only)
    return dataclasses.field(default=default, metadata={"argument": True})


def make(cls: type) -> None:
    """Makes a frozen dataclass of a class. Its fields are keyword arguments, but for those that
    ``argument`` describes. Its ``__repr__`` is inherited."""
    if sys.version_info >= (3, 10):  # novermin
        dataclasses.dataclass(frozen=True, repr=False, kw_only=True)(cls)
    else:
        dataclasses.dataclass(frozen=True, repr=False)(cls)
        _refuse_positions(cls)


def _refuse_positions(cls: Any) -> None:
    parts = dataclasses.fields(cls)
    most = sum("argument" in part.metadata for part in parts)
    made = cls.__init__
    parameters = list(inspect.signature(made).parameters.values())
    shown = [
        parameter if place <= most else parameter.replace(kind=parameter.KEYWORD_ONLY)
        for place, parameter in enumerate(parameters)
    ]

    @wraps(made)
    def init(self: Any, *given: Any, **named: Any) -> None:
        if len(given) > most:
            raise TypeError(
                f"{cls.__name__}: expected at most {most} arguments without a name, "
                f"found {len(given)}"
            )
        made(self, *given, **named)

    setattr(init, "__signature__", inspect.Signature(shown, return_annotation=None))
    cls.__init__ = init
