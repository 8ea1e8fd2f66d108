"""What a filter does with claims, and the decorator ``once``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from . import _ebbtide
from ._ebbtide import Claim, Filter
from ._errors import InProgress
from ._specs import to_timedelta
from ._types import Duration, Key, OpenClaim, Time

if TYPE_CHECKING:
    # A part of what type checkers know; nothing is installed for it.
    from typing_extensions import ParamSpec

    _Given = ParamSpec("_Given")
_Result = TypeVar("_Result")
_Default = TypeVar("_Default")


def claim(
    self: Filter,
    key: Key,
    /,
    *,
    lease: Duration,
    time: Time | None = None,
    durability: Literal["always", "never"] | Duration | None = None,
) -> Claim:
    """Claims a key for work that may fail, for the time of ``lease``: 1 ms to 97 days.

    ``check_and_insert`` remembers a key before the work is done. If the work then fails, its retry
    is suppressed as a repetition. A claim remembers the key only when its holder confirms that the
    work is done. Of any number of callers, in all threads and processes, one gets the key. To the
    others it is in progress, until it is confirmed (then it is seen, for the window), released, or
    the lease is over.

    ``time`` is that of the question and of the insert, ``durability`` that of the confirmation.
    Claims survive restarts and crashes, but are not waited for until they are on the disk. A filter
    holds up to 65,536; beyond that ClaimsFull is raised. ``clear`` does not end them.

    In a coroutine use ``async with``: where a claim, or its end, has to wait, a thread does so.

    >>> import tempfile, ebbtide
    >>> with ebbtide.open(tempfile.mkdtemp(), ebbtide.Fingerprint(last=1000)) as seen:
    ...     with seen.claim("order 17", lease="30s") as claim:
    ...         if claim:
    ...             print("the work is done here")
    ...     "order 17" in seen
    the work is done here
    True
    """
    return _ebbtide.claim(self, key, lease, time, durability)


def resume_claim(
    self: Filter,
    key: Key,
    token: int,
    /,
    *,
    time: Time | None = None,
    durability: Literal["always", "never"] | Duration | None = None,
) -> Claim:
    """Returns the claim of a key with this token, from ``Claim.keep`` of this or another process.

    Nothing is checked before it is used. Like any other it releases the key when it is dropped.
    """
    return _ebbtide.resume_claim(self, key, token, time, durability)


def claims(self: Filter, /) -> list[OpenClaim]:
    """Returns the claims that are held now, in all processes, the oldest first."""
    return _ebbtide.claims(self)


def end_claim(self: Filter, key: Key, /) -> bool:
    """Ends the claim of a key, whoever holds it, if its holder is known to be gone. Returns whether
    there was one."""
    return _ebbtide.end_claim(self, key)


for _method in (claim, resume_claim, claims, end_claim):
    _method.__qualname__ = f"Filter.{_method.__name__}"
    setattr(Filter, _method.__name__, _method)


class _Once(Generic[_Default]):
    """What ``once`` returns: the decorator."""

    def __init__(
        self, seen: Filter, key: Callable[..., Key], lease: Duration, default: _Default
    ) -> None:
        self._seen, self._key, self._lease = seen, key, lease
        self._default = default

    @overload
    def __call__(
        self, function: Callable[_Given, Coroutine[Any, Any, _Result]], /
    ) -> Callable[_Given, Coroutine[Any, Any, _Result | _Default]]: ...
    @overload
    def __call__(
        self, function: Callable[_Given, _Result], /
    ) -> Callable[_Given, _Result | _Default]: ...
    def __call__(self, function: Callable[..., Any], /) -> Callable[..., Any]:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError("once: a generator has not done its work when it is called")
        if _is_coroutine_function(function):

            @functools.wraps(function)
            async def awaited(*given: Any, **named: Any) -> Any:
                async with self._claim(given, named) as claim:
                    return await function(*given, **named) if claim else self._instead(claim)

            return awaited

        @functools.wraps(function)
        def called(*given: Any, **named: Any) -> Any:
            with self._claim(given, named) as claim:
                return _done(function(*given, **named)) if claim else self._instead(claim)

        return called

    def _claim(self, given: tuple[Any, ...], named: dict[str, Any]) -> Claim:
        return _ebbtide.claim(self._seen, self._key(*given, **named), self._lease, None, None)

    def _instead(self, claim: Claim) -> _Default:
        if claim.seen:
            return self._default
        error = InProgress(f"somebody else works on this key, until {claim.until}")
        error.until = claim.until
        raise error


def _done(result: _Result) -> _Result:
    """Refuses what has not done its work yet, so that the key is released."""
    is_generator = inspect.isgenerator(result) or inspect.isasyncgen(result)
    if not is_generator and not inspect.isawaitable(result):
        return result
    if inspect.iscoroutine(result) or inspect.isgenerator(result):
        result.close()
    kind = type(result).__name__
    raise TypeError(
        f"once: the function returned a {kind}, whose work is not done yet: decorate a coroutine "
        "function (async def)"
    )


def _is_coroutine_function(function: Callable[..., Any]) -> bool:
    call = getattr(function, "__call__", None)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


@overload
def once(seen: Filter, *, key: Callable[..., Key], lease: Duration) -> _Once[None]: ...
@overload
def once(
    seen: Filter, *, key: Callable[..., Key], lease: Duration, default: _Default
) -> _Once[_Default]: ...
def once(
    seen: Filter, *, key: Callable[..., Key], lease: Duration, default: Any = None
) -> _Once[Any]:
    """Makes a function, or a coroutine function, run once for each key in the window.

    ``key`` computes the key from the arguments. If the key was seen the function is not called, and
    ``default`` is returned. If another call is working on it, in whatever process, ``InProgress``
    is raised; ``until`` says when to try again. An exception of the function releases the key, so
    that a retry runs; so does the death of the process, after ``lease``. If the function takes
    longer than ``lease``, ``LeaseLost`` is raised at its end: another call may have run meanwhile.

    >>> import tempfile, ebbtide
    >>> seen = ebbtide.open(tempfile.mkdtemp(), ebbtide.Fingerprint(last=1000))
    >>> @ebbtide.once(seen, key=lambda order: order["id"], lease="30s", default="done before")
    ... def charge(order):
    ...     return f"charged {order['amount']}"
    >>> charge({"id": "order 17", "amount": 5})
    'charged 5'
    >>> charge({"id": "order 17", "amount": 5})
    'done before'
    >>> seen.close()
    """
    if not isinstance(seen, Filter):
        raise TypeError(f"once: expected a Filter, found {type(seen).__name__}")
    # Refused here, not at the first call.
    to_timedelta(lease, "lease")
    return _Once(seen, key, lease, default)
