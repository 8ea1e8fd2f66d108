"""``async with`` for filters, readers and claims."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import TypeVar

from ._ebbtide import Claim, Filter, Reader

_Handle = TypeVar("_Handle", Filter, Reader)


async def _in_thread(work: Callable[[], object]) -> None:
    """Does work in a thread, to its end, also if the task is cancelled meanwhile.

    It is a future, not a task: ``asyncio.run`` cancels tasks, and waits for the threads.
    """
    from asyncio import get_running_loop, shield

    await shield(get_running_loop().run_in_executor(None, work))


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
    await _in_thread(self.close)


async def _enter_claim(self: Claim, /) -> Claim:
    """Waits in a thread for an answer that was not there at once."""
    if not self._is_asked:
        from asyncio import to_thread

        await to_thread(self.__enter__)
    return self


async def _leave_claim(
    self: Claim,
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
    /,
) -> None:
    """Confirms or releases, in a thread if that has to wait."""
    if not self._leave_at_once(kind is not None):
        await _in_thread(partial(self.__exit__, kind, error, traceback))


for _owner in (Filter, Reader):
    setattr(_owner, "__aenter__", _enter)
    setattr(_owner, "__aexit__", _leave)
setattr(Claim, "__aenter__", _enter_claim)
setattr(Claim, "__aexit__", _leave_claim)
