"""The method of a filter that gives it other parameters."""

from __future__ import annotations

from . import _ebbtide
from ._ebbtide import Filter
from ._open import text_of
from ._specs import Spec
from ._types import Altered


def alter(self: Filter, spec: Spec | str, /, *, forget: bool = False) -> Altered:
    """Gives the filter another window, rate, capacity or kind, while this and other processes use
    it. Afterwards it answers as a filter of this spec that has had all operations in its log
    (``open(keep_log=...)``).

    The spec is that of ``open``; parameters that it does not name have their defaults. Others write
    meanwhile, and wait at the end for about two seconds for each GiB of the filter. Their objects
    continue with the filter as it is now. A filter whose log begins within the new window
    stays as it is, and NotKept is raised; with ``forget=True`` what was inserted before the log
    begins is forgotten, and without a kept log it begins anew with each alteration. Kinds with
    importances cannot be altered.

    Raises NotKept, BadParameter, Mismatch, Locked while another object alters the filter, IoError.

    >>> import tempfile, ebbtide
    >>> spec = ebbtide.AgePartitioned(100)
    >>> with ebbtide.open(tempfile.mkdtemp(), spec, keep_log="24h") as seen:
    ...     _ = seen.insert_all(f"order {number}" for number in range(1000))
    ...     altered = seen.alter(ebbtide.AgePartitioned(10_000))
    ...     altered.operations, "order 0" in seen, seen.parameters["window-items"]
    (1000, True, '10000')
    """
    if not isinstance(forget, bool):
        raise TypeError(f"forget: expected a bool, found {type(forget).__name__}")
    return _ebbtide.alter(self, text_of(spec), forget)


alter.__qualname__ = "Filter.alter"
setattr(Filter, "alter", alter)
