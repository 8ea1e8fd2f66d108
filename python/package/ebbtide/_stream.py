"""The generator behind ``Filter.only_new``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._ebbtide import Filter
    from ._types import Key


#: The answer for a key that is in the window. One that is too late may never have been seen, so its
#: item is not suppressed, as on the command line.
_PRESENT = 0


def only_new(
    seen: Filter,
    items: Iterable[Any],
    key: Callable[[Any], Key] | None,
    batch: int,
    settings: dict[str, Any],
) -> Iterator[Any]:
    """Yields the items whose keys are new, or too late to know."""
    if batch < 1:
        raise ValueError(f"batch: expected at least 1, found {batch}")
    return _only_new(seen, iter(items), key, batch, settings)


def _only_new(
    seen: Filter,
    items: Iterator[Any],
    key: Callable[[Any], Key] | None,
    batch: int,
    settings: dict[str, Any],
) -> Iterator[Any]:
    while taken := list(islice(items, batch)):
        keys = taken if key is None else [key(item) for item in taken]
        answers = seen.check_and_insert_all(keys, **settings)
        for item, answer in zip(taken, answers):
            if answer != _PRESENT:
                yield item
