"""The generator behind ``Filter.only_new``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._ebbtide import Filter
    from ._types import Key


#: The most items of a batch. Up to this number of keys, a call looks at all of them before it
#: inserts one.
_MOST = 65_536

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
    batch = min(batch, _MOST)
    while True:
        taken, keys, failure = _take(items, key, batch)
        # An error of the source is not hidden by that of a closed filter.
        has_keys = bool(keys) or failure is None
        answers, error = _inserted(seen, keys, settings) if has_keys else (b"", None)
        if isinstance(error, (TypeError, ValueError)) and not answers:
            keys, wrong = _keys_before_error(seen, keys)
            if wrong is not None:
                failure = _stronger(failure, wrong)
                answers, error = _inserted(seen, keys, settings) if keys else (b"", None)
        failure = _stronger(failure, error)
        del error
        for item, answer in zip(taken, answers):
            if answer != _PRESENT:
                yield item
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # Its traceback has this frame.
        if len(taken) < batch:
            return


def _inserted(
    seen: Filter, keys: list[Any], settings: dict[str, Any]
) -> tuple[bytes, BaseException | None]:
    """Returns the answers for the keys that were inserted, and the error that ended them."""
    try:
        return seen.check_and_insert_all(keys, **settings), None
    except BaseException as error:
        return getattr(error, "answers", b""), error


def _stronger(
    failure: BaseException | None, error: BaseException | None
) -> BaseException | None:
    """Returns the later error, unless that hides Ctrl-C."""
    is_hidden = error is None or (failure is not None and not isinstance(failure, Exception))
    return failure if is_hidden else error


def _take(
    items: Iterator[Any], key: Callable[[Any], Key] | None, most: int
) -> tuple[list[Any], list[Any], BaseException | None]:
    """Returns the next items, their keys, and the error that ended them. What was taken before it
    is handled first: nobody could take it again. A key that the source may change for its next item
    is copied."""
    taken: list[Any] = []
    keys: list[Any] = []
    try:
        for item in islice(items, most):
            taken.append(item)
            found = item if key is None else key(item)
            keys.append(bytes(found) if isinstance(found, (bytearray, memoryview)) else found)
    except BaseException as error:
        return taken, keys, error
    return taken, keys, None


def _keys_before_error(seen: Filter, keys: list[Any]) -> tuple[list[Any], Exception | None]:
    """Returns the keys before the first that is none, and its error."""
    for at, key in enumerate(keys):
        try:
            seen.key_hash(key)
        except (TypeError, ValueError) as error:
            return keys[:at], error
    return keys, None
