"""Answers as arrays of ``bool``, which numpy and pandas take as masks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, Union

from ._ebbtide import Filter, Raw, Reader
from ._types import Duration, Key, Time

if TYPE_CHECKING:
    from numpy import bool_
    from numpy.typing import NDArray
    from typing_extensions import Buffer

    _Keys = Union[Iterable[Key], Buffer, Raw]


def _nonzero(answers: bytes) -> NDArray[bool_]:
    # Not at the head: the package does without numpy.
    import numpy

    mask: NDArray[bool_] = numpy.frombuffer(answers, numpy.uint8) != 0
    return mask


def new_mask(
    self: Filter,
    keys: _Keys,
    /,
    *,
    time: Time | None = None,
    durability: Literal["always", "never"] | Duration | None = None,
    since: Literal["last-seen", "last-accepted"] | None = None,
    weight: float | None = None,
) -> NDArray[bool_]:
    """Checks and inserts many keys, as ``check_and_insert_all``, and returns a numpy array of
    ``bool``: True for the items that ``only_new`` yields, which are those with a new key and those
    that are too late for the window.

    ``keys`` may be a numpy array of text or byte strings, a column of pandas, any other iterable of
    keys, or ``ebbtide.raw(array)``. An item without a value (None, NaN) is no key: drop it before.
    Needs numpy.

    >>> import numpy, tempfile, ebbtide
    >>> ids = numpy.array(["a", "b", "a"])
    >>> with ebbtide.open(tempfile.mkdtemp(), ebbtide.Fingerprint(last=1000)) as seen:
    ...     print(ids[seen.new_mask(ids)])
    ['a' 'b']
    """
    settings: dict[str, Any] = {
        "time": time,
        "durability": durability,
        "since": since,
        "weight": weight,
    }
    # Without numpy nothing is inserted.
    import numpy  # noqa: F401

    return _nonzero(self.check_and_insert_all(keys, **settings))


def contains_mask(
    self: Filter | Reader, keys: _Keys, /, *, time: Time | None = None
) -> NDArray[bool_]:
    """Returns for each of many keys whether it is in the window, as ``contains_all``, in a numpy
    array of ``bool``. ``keys`` are those of ``Filter.new_mask``. Needs numpy.

    >>> import numpy, tempfile, ebbtide
    >>> with ebbtide.open(tempfile.mkdtemp(), ebbtide.Fingerprint(last=1000)) as seen:
    ...     seen.add("b")
    ...     print(seen.contains_mask(numpy.array(["a", "b"])))
    [False  True]
    """
    return _nonzero(self.contains_all(keys, time=time))


for _owner, _methods in ((Filter, (new_mask, contains_mask)), (Reader, (contains_mask,))):
    for _method in _methods:
        setattr(_owner, _method.__name__, _method)
new_mask.__qualname__ = "Filter.new_mask"
