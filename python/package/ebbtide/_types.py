"""What the calls of a filter return."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, NamedTuple, Union

from ._dataclasses import SLOTS

Key = Union[str, bytes, bytearray, memoryview]
"""A key: text counts as its UTF-8."""

Time = Union[datetime, float]
"""A point in time: a ``datetime`` with a zone, or seconds since 1970 (UTC)."""

if TYPE_CHECKING:
    # The package does without numpy.
    from numpy import timedelta64

    Duration = Union[timedelta, float, str, timedelta64]
else:
    Duration = Union[timedelta, float, str]
"""A duration: a ``timedelta``, a ``numpy.timedelta64``, a number of seconds, or text with a unit
(``"10m"``, ``"90s"``)."""

Moment = Union[datetime, str]
"""A moment of a filter's past: a ``datetime`` with a zone, for the moment before the first
operation that is later; ``"lsn:17"``, for that after record 17; or ``"position:3=900"``, for that
before the position of source 3 passed 900."""


@dataclass(frozen=True, **SLOTS)
class Estimate:
    """How often a key was inserted."""

    #: The count; of decaying kinds what is left of it.
    count: float
    #: Whether a counter is saturated, so that the key may have been inserted more often.
    at_least: bool


@dataclass(frozen=True, **SLOTS)
class Cardinality:
    """How many distinct keys a window or a part of it has."""

    #: The estimated number of distinct keys.
    keys: float
    #: Its standard error, in keys.
    standard_error: float
    #: How far back the keys are counted: at least as far as asked for, and further by up to one
    #: generation. A ``timedelta`` if the window is a time, otherwise a number of inserts.
    reach: timedelta | int


class Admission(NamedTuple):
    """The answer of ``insert_up_to``."""

    #: Whether the key was counted.
    admitted: bool
    #: How often the key was inserted, this time included if it was admitted. A key that is too
    #: late is not admitted, also if this is below the limit.
    estimate: Estimate


class Digest(NamedTuple):
    """A hash of a filter's logical state, equal for equal filters."""

    #: 32 hexadecimal digits, as ``ebbtide digest`` prints them.
    value: str
    #: The number that the next record gets.
    lsn: int
    #: How many inserts the filter has seen.
    inserts: int


@dataclass(frozen=True, **SLOTS)
class OpenClaim:
    """A claim that is held."""

    #: The hash of its key, as ``Filter.key_hash`` gives it.
    hash: int
    token: int
    #: How long ago it began.
    age: timedelta
    #: When it ends, from now, if it is not renewed.
    remaining: timedelta


@dataclass(frozen=True, **SLOTS)
class Stat:
    """Statistics of a filter."""

    #: The kind's name.
    kind: str
    #: All parameters of the kind, as text: durations in microseconds.
    parameters: dict[str, str]
    #: Inserts since the creation or the last ``clear``, repeated ones included.
    inserts: int
    #: Operations with a record: inserts and removals.
    operations: int
    #: The number that the next record gets; every record below ``durable_lsn`` is on the disk.
    lsn: int
    durable_lsn: int
    #: The current step of kinds that have steps.
    step: int | None
    #: The latest time of the filter; None if its kind does not use time.
    time: datetime | None
    #: How far that time is ahead of the clock, if it is a second or more.
    clock_lead: timedelta | None
    #: The share of cells in use, from 0 to 1.
    fill: float
    #: The distinct keys in the window, on a sample of the blocks, and the standard error of that
    #: number; None for kinds that do not know it.
    distinct_keys: float | None
    distinct_keys_error: float | None
    #: The false-positive rate to expect now, and the one planned for.
    estimated_fpr: float
    planned_fpr: float
    #: Whether the filter holds more keys than it was planned for.
    saturated: bool
    #: Figures of this kind, by name.
    figures: dict[str, int]
    memory_bytes: int
    #: Where the cells of the live image lie, such as "memory" or "beside the log".
    image: str
    disk_bytes: int
    stripes: int
    blocks: int
    banks: int
    #: Open handles in all processes, without readers.
    handles: int
    snapshots: int
    wal_segments: int
    #: Keys that were refused as too late.
    refused: int
    #: Claims that are held: keys that somebody is working on.
    claims: int
    #: How long ago the oldest of them began; None if there is none.
    oldest_claim: timedelta | None
    #: How much of the log is kept beyond what recovery needs: ``nothing``, a time or a size.
    keep_log: str
    #: The LSN from which on every moment can be asked for; None without ``keep_log``.
    kept_log_from: int | None
    #: How long ago recovery stopped needing the oldest kept log: all younger operations are there.
    #: None if nothing is kept, or not yet.
    kept_log_for: timedelta | None
    #: Whether that is less than wished, and not all there ever was: the disk was full, or the wish
    #: is younger than the time it wishes.
    kept_log_is_short: bool
    #: Bytes on the disk that are kept for it.
    kept_log_bytes: int
    #: ``always``, ``never``, or ``interval`` with a time.
    durability: str
    #: ``fast`` or ``keyed``.
    key_hash: str
    max_lead: timedelta
    #: The version of the format of the filter's files.
    format: int


@dataclass(frozen=True, **SLOTS)
class Operation:
    """An operation in the log of a filter, from ``history``. What it has depends on its kind."""

    #: The number of its record.
    lsn: int
    #: When, by the filter's time; None for a filter without a clock, and for positions.
    time: datetime | None
    kind: Literal["insert", "remove", "clear", "position", "claim", "release"]
    #: The hash of the key, as ``Filter.key_hash`` gives it.
    hash: int | None = None
    #: How often, or how important it is; of kinds without weights 1.
    weight: int | None = None
    #: The source that was read up to ``position``.
    source: int | None = None
    position: int | None = None
    #: The token of the claim.
    token: int | None = None
    #: How long the claim holds from ``time`` on.
    lease: timedelta | None = None
    #: Whether the time came with the key (``insert(..., time=...)``), and not from a clock.
    is_stream_time: bool = False


@dataclass(frozen=True, **SLOTS)
class Commit:
    """Operations that happened together: one, or those of a batch."""

    #: The number of its last record: ``after=f"lsn:{lsn}"`` continues behind it.
    lsn: int
    #: Each opening of a filter that nobody else has open begins a timeline.
    timeline: int
    operations: tuple[Operation, ...]


@dataclass(frozen=True, **SLOTS)
class Altered:
    """What ``Filter.alter`` has done."""

    #: The number of the alteration: ``Reader(path, at=f"lsn:{lsn - 1}")`` is the filter before it.
    lsn: int
    #: Insertions and removals in the log, which the filter now has.
    operations: int
    #: Whether the log has all of them since the filter was created.
    is_whole: bool
    #: The time of the first operation in the log, if it has one.
    since: datetime | None
    #: For how long writers had to wait at the end.
    stopped: timedelta


@dataclass(frozen=True, **SLOTS)
class AlterationPlan:
    """What ``Filter.alter`` would take, from ``plan_alteration``."""

    #: Records of the log that it reads.
    records: int
    #: The number of the first of them. If it is 1, the log reaches back to the creation of the
    #: filter. Otherwise what was inserted before is forgotten.
    first_lsn: int
    #: The time of the first operation, if it has one.
    since: datetime | None
    #: Whether the log has the whole new window, as far as records and times tell, and no removals
    #: that the new kind cannot make. Otherwise the alteration needs ``forget=True``.
    has_window: bool
    #: Bytes of memory that the filter takes when it is new, with the parameters that it has, and
    #: with the new ones. The alteration takes the latter twice, beside what the filter takes now,
    #: and as many bytes of disk for a snapshot.
    memory_before: int
    memory_after: int


@dataclass(frozen=True, **SLOTS)
class Remade:
    """What a filter has that ``remake`` has made."""

    #: Insertions and removals that it has taken.
    operations: int
    #: Whether the logs have all of them since the filters were created.
    is_whole: bool
    #: The time of the first operation, if it has one.
    since: datetime | None


@dataclass(frozen=True, **SLOTS)
class FileReport:
    """What ``verify`` found in a file."""

    #: The file's name; ``.`` for all of them together.
    name: str
    #: A short description.
    detail: str
    #: The file's size in bytes.
    bytes: int
    #: The damage found, a sentence for each.
    damage: list[str]


@dataclass(frozen=True, **SLOTS)
class Report:
    """What ``verify`` found. True if nothing is damaged."""

    files: list[FileReport]

    @property
    def sound(self) -> bool:
        """Whether no file is damaged."""
        return not any(file.damage for file in self.files)

    def __bool__(self) -> bool:
        return self.sound


@dataclass(frozen=True, **SLOTS)
class Plan:
    """What a filter will take, before anything is created."""

    kind: str
    #: All parameters of the kind, completed.
    parameters: dict[str, str]
    #: Bytes of memory, without the log.
    memory_bytes: int
    #: The most bytes of disk: snapshots and log, and the image if it lies beside the log.
    disk_bytes: int
    #: Bytes that an insert writes to the disk: its record, and its share of a snapshot.
    written_bytes: float
    #: Bits of memory for each key of the window or the capacity; None if it is not one of keys.
    bits_per_key: float | None
    #: The false-positive rate when the filter is as full as planned.
    fpr: float
    stripes: int
    blocks: int


@dataclass(frozen=True, **SLOTS)
class Salvaged:
    """What ``salvage`` recovered from a damaged filter."""

    #: The number of the first record that was not recovered.
    lsn: int
    #: Inserts in the recovered state.
    inserts: int
    #: Records below this number had been acknowledged as durable, as far as the files show.
    durable_lsn: int
    #: How many records are lost, as far as the files show, and why; (0, None) if none are.
    lost: tuple[int, str | None]
    #: Readable operations beyond the damage, which were left out.
    beyond: int
    #: Other damage, a sentence for each.
    damaged: list[str]
