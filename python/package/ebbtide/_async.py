"""``async with`` for filters and readers, and other names that are made of those in Rust."""

from __future__ import annotations

from types import TracebackType
from typing import TypeVar

from ._ebbtide import Filter, Reader

_Handle = TypeVar("_Handle", Filter, Reader)


async def _enter(self: _Handle, /) -> _Handle:
    return self.__enter__()


async def _leave(
    self: _Handle,
    _kind: type[BaseException] | None,
    _error: BaseException | None,
    _traceback: TracebackType | None,
    /,
) -> None:
    """Closes in a thread, because that waits for the disk."""
    from asyncio import to_thread

    await to_thread(self.close)


for _owner in (Filter, Reader):
    setattr(_owner, "__aenter__", _enter)
    setattr(_owner, "__aexit__", _leave)
