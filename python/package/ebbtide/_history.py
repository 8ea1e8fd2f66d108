"""How the log of a filter names keys."""

from __future__ import annotations

from . import _ebbtide
from ._ebbtide import Filter
from ._types import Key


def key_hash(self: Filter, key: Key, /) -> int:
    """Returns the hash by which the log names a key: ``Operation.hash`` and ``OpenClaim.hash``.

    It depends on the filter's secret seed: do not show it to those who could choose keys by it.

    >>> import tempfile, ebbtide
    >>> path = tempfile.mkdtemp()
    >>> with ebbtide.open(path, ebbtide.Bloom(1000), durability="always") as seen:
    ...     seen.insert("order 17")
    ...     log = [one.hash for commit in ebbtide.history(path) for one in commit.operations]
    ...     log == [seen.key_hash("order 17")]
    True
    """
    return _ebbtide.key_hash(self, key)


def share_of(hash: int, count: int) -> int:
    """Returns the number of the share, of ``count``, that a key hash belongs to: from 0, as in
    ``remake(share=(number, count))``.

    >>> ebbtide.share_of(17, 1)
    0
    """
    return _ebbtide.share_of(hash, count)


key_hash.__qualname__ = "Filter.key_hash"
setattr(Filter, "key_hash", key_hash)
