"""``async with`` for filters, readers and claims."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from ._ebbtide import Claim, Filter, Reader

_Handle = TypeVar("_Handle", Filter, Reader)


async def _to_its_end(work: Callable[..., object], *given: Any) -> None:
    """Runs the end of a block in a thread, and returns when that is done.

    Cancelling the task neither keeps the thread from it nor ends the wait: the block is over, and
    what follows may close the filter. The cancellation is raised afterwards; an error that it hides
    goes to the event loop's exception handler, which logs it.
    """
    import asyncio
    import contextvars

    loop, run = asyncio.get_running_loop(), contextvars.copy_context().run
    done = loop.run_in_executor(None, run, work, *given)
    cancelled: asyncio.CancelledError | None = None
    try:
        while not done.done():
            try:
                # Not the future itself, which would be cancelled with the task.
                await asyncio.wait([done])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is None:
            done.result()
            return
        failure = done.exception()
        if failure is not None:
            message = "ebbtide: the end of a block failed, after its task was cancelled"
            loop.call_exception_handler({"message": message, "exception": failure})
        raise cancelled
    finally:
        cancelled = failure = None  # Their tracebacks have this frame.


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
    await _to_its_end(self.close)


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
        await _to_its_end(self.__exit__, kind, error, traceback)


for _owner in (Filter, Reader):
    setattr(_owner, "__aenter__", _enter)
    setattr(_owner, "__aexit__", _leave)
setattr(Claim, "__aenter__", _enter_claim)
setattr(Claim, "__aexit__", _leave_claim)
