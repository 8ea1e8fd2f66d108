"""Types of the part of the package that is not written in Python."""

import os
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Literal, NoReturn, TypeVar, final, overload

from numpy import bool_
from numpy.typing import NDArray
from typing_extensions import Buffer, Self

from ._specs import Spec
from ._types import (
    Admission,
    AlterationPlan,
    Altered,
    Cardinality,
    Commit,
    Digest,
    Duration,
    Estimate,
    Key,
    Moment,
    OpenClaim,
    Plan,
    Remade,
    Report,
    Salvaged,
    Stat,
    Time,
)

_Item = TypeVar("_Item")
_Key = TypeVar("_Key", bound=Key)

#: Many keys: an iterable of them, an array of byte strings, or ``raw(array)``.
_Keys = Iterable[Key] | Buffer | Raw

_Durability = Literal["always", "never"] | Duration
_Since = Literal["last-seen", "last-accepted"]

__all__ = [
    "__version__",
    "Batch",
    "Claim",
    "Filter",
    "Reader",
    "Raw",
    "History",
    "raw",
    "claim",
    "resume_claim",
    "claims",
    "end_claim",
    "open_filter",
    "reopen_filter",
    "restore",
    "restore_at",
    "alter",
    "plan_alteration",
    "remake",
    "verify",
    "history",
    "key_hash",
    "share_of",
    "salvage",
    "plan",
    "parse_duration",
]

__version__: str

@final
class Raw:
    def __len__(self) -> int: ...

@final
class Batch:
    def insert(
        self, key: Key, /, *, time: Time | None = None, weight: float | None = None
    ) -> None: ...
    def check_and_insert(
        self, key: Key, /, *, time: Time | None = None, weight: float | None = None
    ) -> bool: ...
    def set_position(self, source: int, position: int, /) -> None: ...
    def confirm(self, claim: Claim, /) -> None: ...
    def commit(self) -> None: ...
    def clear(self) -> None: ...
    @property
    def path(self) -> str: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
        /,
    ) -> None: ...

@final
class Claim:
    def confirm(self) -> None: ...
    def release(self) -> bool: ...
    def extend(self, lease: Duration, /) -> datetime | None: ...
    def keep(self) -> int: ...
    @property
    def is_mine(self) -> bool: ...
    @property
    def seen(self) -> bool: ...
    @property
    def in_progress(self) -> bool: ...
    @property
    def until(self) -> datetime | None: ...
    @property
    def token(self) -> int | None: ...
    def __bool__(self) -> bool: ...
    @property
    def _is_asked(self) -> bool: ...
    def _leave_at_once(self, failed: bool) -> bool: ...
    async def __aenter__(self, /) -> Self: ...
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
        /,
    ) -> None: ...

@final
class Filter:
    def __new__(cls, *_arguments: object, **_settings: object) -> NoReturn: ...
    def insert(
        self,
        key: Key,
        /,
        *,
        time: Time | None = None,
        durability: _Durability | None = None,
        weight: float | None = None,
    ) -> None: ...
    add = insert
    def check_and_insert(
        self,
        key: Key,
        /,
        *,
        time: Time | None = None,
        durability: _Durability | None = None,
        since: _Since | None = None,
        weight: float | None = None,
    ) -> bool: ...
    def insert_all(
        self,
        keys: _Keys,
        /,
        *,
        time: Time | None = None,
        durability: _Durability | None = None,
        weight: float | None = None,
    ) -> int: ...
    def check_and_insert_all(
        self,
        keys: _Keys,
        /,
        *,
        time: Time | None = None,
        durability: _Durability | None = None,
        since: _Since | None = None,
        weight: float | None = None,
    ) -> bytes: ...
    def remove(
        self,
        key: Key,
        /,
        *,
        time: Time | None = None,
        durability: _Durability | None = None,
        weight: float | None = None,
    ) -> bool: ...
    def insert_and_estimate(
        self,
        key: Key,
        /,
        *,
        time: Time | None = None,
        durability: _Durability | None = None,
        weight: float | None = None,
    ) -> Estimate: ...
    def insert_up_to(
        self,
        key: Key,
        limit: float,
        /,
        *,
        time: Time | None = None,
        durability: _Durability | None = None,
        weight: float | None = None,
    ) -> Admission: ...
    @overload
    def only_new(
        self,
        items: Iterable[_Item],
        /,
        *,
        key: Callable[[_Item], Key],
        batch: int = 1024,
        time: Time | None = None,
        durability: _Durability | None = None,
        since: _Since | None = None,
        weight: float | None = None,
    ) -> Iterator[_Item]: ...
    @overload
    def only_new(
        self,
        items: Iterable[_Key],
        /,
        *,
        key: None = None,
        batch: int = 1024,
        time: Time | None = None,
        durability: _Durability | None = None,
        since: _Since | None = None,
        weight: float | None = None,
    ) -> Iterator[_Key]: ...
    def new_mask(
        self,
        keys: _Keys,
        /,
        *,
        time: Time | None = None,
        durability: _Durability | None = None,
        since: _Since | None = None,
        weight: float | None = None,
    ) -> NDArray[bool_]: ...
    def clear(self) -> None: ...
    def sync(self) -> None: ...
    def checkpoint(self) -> int: ...
    def backup(self, path: str | os.PathLike[str], /) -> None: ...
    def alter(self, spec: Spec | str, /, *, forget: bool = False) -> Altered: ...
    def key_hash(self, key: Key, /) -> int: ...
    def contains(self, key: Key, /, *, time: Time | None = None) -> bool: ...
    def __contains__(self, key: Key, /) -> bool: ...
    def contains_all(self, keys: _Keys, /, *, time: Time | None = None) -> bytes: ...
    def contains_mask(
        self, keys: _Keys, /, *, time: Time | None = None
    ) -> NDArray[bool_]: ...
    def age(self, key: Key, /, *, time: Time | None = None) -> timedelta | int | None: ...
    def seen_within(
        self, key: Key, within: Duration, /, *, time: Time | None = None
    ) -> bool: ...
    def distinct(self, *, time: Time | None = None) -> Cardinality: ...
    def distinct_within(
        self, within: Duration, /, *, time: Time | None = None
    ) -> Cardinality: ...
    def posterior(
        self,
        key: Key,
        prior: float,
        /,
        *,
        rate: float | None = None,
        time: Time | None = None,
    ) -> float: ...
    def decide(
        self,
        key: Key,
        prior: float,
        /,
        *,
        false_positive: float,
        false_negative: float,
        rate: float | None = None,
        time: Time | None = None,
    ) -> bool: ...
    def estimate(self, key: Key, /, *, time: Time | None = None) -> Estimate: ...
    def estimate_all(self, keys: _Keys, /, *, time: Time | None = None) -> list[Estimate]: ...
    def frequency(self, key: Key, /, *, time: Time | None = None) -> Estimate: ...
    def batch(
        self, *, durability: _Durability | None = None, since: _Since | None = None
    ) -> Batch: ...
    def claim(
        self,
        key: Key,
        /,
        *,
        lease: Duration,
        time: Time | None = None,
        durability: _Durability | None = None,
    ) -> Claim: ...
    def resume_claim(
        self,
        key: Key,
        token: int,
        /,
        *,
        time: Time | None = None,
        durability: _Durability | None = None,
    ) -> Claim: ...
    def claims(self, /) -> list[OpenClaim]: ...
    def end_claim(self, key: Key, /) -> bool: ...
    def position(self, source: int, /) -> int | None: ...
    def positions(self) -> dict[int, int]: ...
    def digest(self) -> Digest: ...
    def stat(self) -> Stat: ...
    def close(self) -> None: ...
    @property
    def path(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def parameters(self) -> dict[str, str]: ...
    @property
    def closed(self) -> bool: ...
    async def __aenter__(self, /) -> Self: ...
    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
        /,
    ) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
        /,
    ) -> None: ...
    def __copy__(self) -> NoReturn: ...
    def __deepcopy__(self, _memo: object, /) -> NoReturn: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class Reader:
    def __new__(
        cls,
        path: str | os.PathLike[str],
        /,
        *,
        at: Moment | None = None,
        reopen_after_fork: bool = True,
    ) -> Self: ...
    def contains(self, key: Key, /, *, time: Time | None = None) -> bool: ...
    def __contains__(self, key: Key, /) -> bool: ...
    def contains_all(self, keys: _Keys, /, *, time: Time | None = None) -> bytes: ...
    def contains_mask(
        self, keys: _Keys, /, *, time: Time | None = None
    ) -> NDArray[bool_]: ...
    def age(self, key: Key, /, *, time: Time | None = None) -> timedelta | int | None: ...
    def seen_within(
        self, key: Key, within: Duration, /, *, time: Time | None = None
    ) -> bool: ...
    def distinct(self, *, time: Time | None = None) -> Cardinality: ...
    def distinct_within(
        self, within: Duration, /, *, time: Time | None = None
    ) -> Cardinality: ...
    def posterior(
        self,
        key: Key,
        prior: float,
        /,
        *,
        rate: float | None = None,
        time: Time | None = None,
    ) -> float: ...
    def decide(
        self,
        key: Key,
        prior: float,
        /,
        *,
        false_positive: float,
        false_negative: float,
        rate: float | None = None,
        time: Time | None = None,
    ) -> bool: ...
    def estimate(self, key: Key, /, *, time: Time | None = None) -> Estimate: ...
    def estimate_all(self, keys: _Keys, /, *, time: Time | None = None) -> list[Estimate]: ...
    def frequency(self, key: Key, /, *, time: Time | None = None) -> Estimate: ...
    def position(self, source: int, /) -> int | None: ...
    def positions(self) -> dict[int, int]: ...
    def digest(self) -> Digest: ...
    def stat(self) -> Stat: ...
    def close(self) -> None: ...
    @property
    def path(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def parameters(self) -> dict[str, str]: ...
    @property
    def closed(self) -> bool: ...
    async def __aenter__(self, /) -> Self: ...
    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
        /,
    ) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
        /,
    ) -> None: ...
    def __copy__(self) -> NoReturn: ...
    def __deepcopy__(self, _memo: object, /) -> NoReturn: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class History:
    def __iter__(self) -> Self: ...
    def __next__(self) -> Commit: ...
    def wait(self, timeout: Duration | None = None) -> Commit | None: ...
    @property
    def position(self) -> int: ...

# Before Python 3.12 numpy does not declare that its arrays are buffers.
def raw(array: Buffer | NDArray[Any], /) -> Raw: ...
def claim(
    seen: Filter,
    key: Key,
    lease: Duration,
    time: Time | None,
    durability: _Durability | None,
) -> Claim: ...
def resume_claim(
    seen: Filter,
    key: Key,
    token: int,
    time: Time | None,
    durability: _Durability | None,
) -> Claim: ...
def claims(seen: Filter) -> list[OpenClaim]: ...
def end_claim(seen: Filter, key: Key) -> bool: ...
def open_filter(
    path: str,
    spec: str | None,
    create: bool | None,
    options: str,
    reopen_after_fork: bool,
) -> Filter: ...
def reopen_filter(path: str, options: str, reopen_after_fork: bool) -> Filter: ...
def restore(backup: str, path: str) -> None: ...
def restore_at(filter: str, path: str, at: Moment) -> None: ...
def alter(seen: Filter, spec: str, forget: bool) -> Altered: ...
def plan_alteration(path: str, spec: str) -> AlterationPlan: ...
def remake(
    filters: list[str], path: str, spec: str, options: str, share: tuple[int, int] | None
) -> Remade: ...
def history(path: str, after: Moment | None, durable: bool) -> History: ...
def key_hash(seen: Filter, key: Key) -> int: ...
def share_of(hash: int, count: int) -> int: ...
def verify(path: str) -> Report: ...
def salvage(damaged: str, path: str) -> Salvaged | None: ...
def plan(spec: str, options: str) -> Plan: ...
def parse_duration(text: str) -> int: ...
