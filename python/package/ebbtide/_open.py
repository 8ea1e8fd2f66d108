"""Opening filters, and the functions that need no open filter."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Literal, Union

from . import _ebbtide
from ._ebbtide import Filter, History, Reader
from ._errors import Error
from ._specs import Spec, micros, to_timedelta
from ._types import AlterationPlan, Duration, Moment, Plan, Remade, Report, Salvaged

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

_opened: weakref.WeakSet[Filter] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Closes what is open, so that the last snapshots are written. One that cannot be closed, because
    it was removed for example, is named on standard error and keeps no other one open."""
    for filter in list(_opened):
        try:
            filter.close()
        except Error as error:
            print(f"ebbtide: {error}", file=sys.stderr)


def _absolute(path: Path, name: str = "path") -> str:
    """Returns a path that no change of the working directory alters. It is not shortened: behind a
    symbolic link ``..`` is another directory than its text says."""
    text = os.fsdecode(path)
    if not text:
        raise ValueError(f"{name}: expected the path of a directory, found an empty one")
    return text if os.path.isabs(text) else os.path.join(os.getcwd(), text)


def text_of(spec: Spec | str) -> str:
    """Returns a kind with its parameters as text."""
    if isinstance(spec, (Spec, str)):
        return str(spec)
    raise TypeError(
        "spec: expected a kind such as ebbtide.Fingerprint(last=1000), or text such as "
        f"'fingerprint last=1000', found {type(spec).__name__}"
    )


def _duration_text(value: Duration, name: str) -> str:
    return f"{micros(to_timedelta(value, name), name)}us"


def _options(
    durability: Literal["always", "never"] | Duration | None,
    durations: dict[str, Duration | None],
    others: dict[str, Any],
) -> str:
    """Returns options as text."""
    words: dict[str, str] = {}
    if durability in ("always", "never"):
        words["durability"] = str(durability)
    elif durability is not None:
        words["durability"] = _duration_text(durability, "durability")
    for name, duration in durations.items():
        if duration is not None:
            words[name.replace("_", "-")] = _duration_text(duration, name)
    for name, value in others.items():
        if value is not None:
            words[name.replace("_", "-")] = _word(value, name)
    return " ".join(f"{name}={value}" for name, value in words.items())


def _word(value: Any, name: str) -> str:
    if name == "background":
        if not isinstance(value, bool):
            raise TypeError(f"background: expected a bool, found {type(value).__name__}")
        return "on" if value else "off"
    if name == "image":
        return _image(value)
    if name == "keep_log":
        return _keep_log(value)
    if name in ("hash", "downtime"):
        if not isinstance(value, str):
            raise TypeError(f"{name}: expected a str, found {type(value).__name__}")
        return value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: expected an int, found {type(value).__name__}")
    number = int(value.__index__())
    return f"{number:o}" if name == "mode" else str(number)


def _image(place: Any) -> str:
    if place in ("memory", "beside-log"):
        return str(place)
    if not isinstance(place, (str, bytes, os.PathLike)):
        raise TypeError(f"image: expected a str or a path, found {type(place).__name__}")
    path = _absolute(place, "image")
    if any(character.isspace() for character in path):
        raise ValueError(f"image: expected a directory without spaces in its path, found {path!r}")
    return path


def _keep_log(keep: Any) -> str:
    if isinstance(keep, timedelta):
        return _duration_text(keep, "keep_log")
    if isinstance(keep, str):
        return "".join(keep.split())
    raise TypeError(
        "keep_log: expected a timedelta, or text such as '24h', '10GiB' or 'nothing', found "
        f"{type(keep).__name__}"
    )


def open(
    path: Path,
    spec: Spec | str | None = None,
    *,
    create: bool | None = None,
    durability: Literal["always", "never"] | Duration | None = None,
    hash: Literal["fast", "keyed"] | None = None,
    hash_seed: int | None = None,
    stripes: int | None = None,
    block_bytes: int | None = None,
    segment_bytes: int | None = None,
    max_lead: Duration | None = None,
    downtime: Literal["age", "freeze"] | None = None,
    mode: int | None = None,
    checkpoint_bytes: int | None = None,
    background: bool | None = None,
    image: Literal["memory", "beside-log"] | Path | None = None,
    keep_log: timedelta | str | None = None,
    reopen_after_fork: bool = True,
) -> Filter:
    """Opens the filter in a directory, or creates it.

    Without a ``spec`` the filter must exist. With one it is created if it does not exist, and must
    otherwise be of that kind with those parameters. ``create=True`` insists on a new filter,
    ``create=False`` on an existing one. A spec is a kind such as ``Fingerprint(last=10_000)``, or
    text as on the command line: ``"fingerprint last=10k fpr=0.01"``.

    Fixed when the filter is created, and refused if an existing one has another value:

    - ``hash``: ``"keyed"`` for keys whose authors may gain from wrong answers, else ``"fast"``.
    - ``hash_seed``: a number, for filters that are equal bit by bit. Random by default.
    - ``stripes``, ``block_bytes``, ``segment_bytes``: sizes that rarely matter.
    - ``max_lead``: how far ahead of the clock a key's time may lie (an hour).
    - ``downtime``: whether keys ``"age"`` while no process has the filter open, or ``"freeze"``.
    - ``mode``: the permissions of its files, ``0o600`` or ``0o660``.

    Of the filter, until another call changes it: ``keep_log``, how much of the log is kept beyond
    what recovery needs: the operations of a time (``"24h"``, or a ``timedelta``), at most so much
    disk (``"10GiB"``), or ``"nothing"``. What is kept can be asked for: ``Reader(path, at=...)``,
    ``restore(..., at=...)``, ``history``.

    Of this object: ``durability``, when an insert is on the disk: ``"always"`` when the call
    returns, a duration so much later (by default as the filter was created: a second), ``"never"``
    when the system gets to it; whatever returned survives the death of the process in any case.
    ``checkpoint_bytes`` of log make a snapshot due; ``background=False`` does
    without the two threads that sync and write snapshots. ``image``: where the first process that
    opens the filter puts its cells: in ``"memory"``, ``"beside-log"``, or in a directory, such as
    one of a tmpfs with huge pages (docs/operating.md). In a child made by ``os.fork`` the object
    opens the filter again at its first use; ``reopen_after_fork=False`` raises ``Forked`` instead.

    Raises NotAFilter, Exists, Mismatch, BadParameter, Locked, Crowded, Damaged, WrongVersion,
    IoError.

    >>> import tempfile, ebbtide
    >>> path = tempfile.mkdtemp()
    >>> with ebbtide.open(path, ebbtide.Fingerprint(window="10m")) as seen:
    ...     seen.check_and_insert("message 4711")
    True
    >>> with ebbtide.open(path) as seen:
    ...     "message 4711" in seen
    True
    """
    if create is not None and not isinstance(create, bool):
        raise TypeError(f"create: expected a bool or None, found {type(create).__name__}")
    options = _options(
        durability,
        {"max_lead": max_lead},
        {
            "hash": hash,
            "hash_seed": hash_seed,
            "stripes": stripes,
            "block_bytes": block_bytes,
            "segment_bytes": segment_bytes,
            "downtime": downtime,
            "mode": mode,
            "checkpoint_bytes": checkpoint_bytes,
            "background": background,
            "image": image,
            "keep_log": keep_log,
        },
    )
    text = None if spec is None else text_of(spec)
    path, reopens = _absolute(path), bool(reopen_after_fork)
    return _noted(_ebbtide.open_filter(path, text, create, options, reopens))


def _noted(opened: Filter) -> Filter:
    _opened.add(opened)
    return opened


def unpickled(path: str, options: str, reopen: bool) -> Filter:
    """Opens a filter as a pickled object says: an existing one, with the object's own settings. Those
    of the filter may have changed since."""
    return _noted(_ebbtide.reopen_filter(path, options, reopen))


def unpickled_reader(path: str, reopen: bool, at: Moment | None = None) -> Reader:
    """Opens a filter for reading as a pickled object says."""
    return Reader(path, at=at, reopen_after_fork=reopen)


def restore(backup: Path, path: Path, *, at: Moment | None = None) -> None:
    """Copies a backup, or any filter that no process has open, to a new directory.

    The copy continues the old filter. With ``at`` it is what the filter was at a moment of its
    past, if its log is kept (``open(keep_log=...)``); others may use the filter meanwhile. Raises
    Exists, Locked, NotAFilter, NotKept, Damaged, IoError.

    >>> import tempfile, ebbtide
    >>> path, new = tempfile.mkdtemp(), tempfile.mkdtemp()
    >>> with ebbtide.open(path, ebbtide.Bloom(1000), keep_log="24h") as seen:
    ...     seen.insert("order 17")
    ...     moment = f"lsn:{seen.stat().lsn - 1}"
    ...     seen.clear()
    >>> ebbtide.restore(path, new, at=moment)
    >>> "order 17" in ebbtide.Reader(new)
    True
    """
    if at is None:
        _ebbtide.restore(_absolute(backup), _absolute(path))
    else:
        _ebbtide.restore_at(_absolute(backup), _absolute(path), at)


def remake(
    filters: Iterable[Path],
    path: Path,
    spec: Spec | str,
    *,
    share: tuple[int, int] | None = None,
    keep_log: timedelta | str | None = None,
    stripes: int | None = None,
    block_bytes: int | None = None,
    segment_bytes: int | None = None,
    mode: int | None = None,
) -> Remade:
    """Makes a filter in a new directory from the logs of others.

    It answers as a filter of this spec that has had all of their operations, in the order of their
    times, since their logs begin (``open(keep_log=...)``): of one filter with another window, rate,
    capacity or kind, of several their union, if they have one ``hash_seed``. ``share=(0, 4)`` takes
    the first of four parts of the keys, by their hash. The filters may be in use; what they do
    after the end of their logs was read is not in the new one. To alter a filter where it is:
    ``Filter.alter``. The other settings are those of ``open``.

    ``is_whole`` of the answer says whether the logs had everything. Raises Exists, Mismatch,
    BadParameter, NotAFilter, IoError; then there is no new filter, unless an IoError came at the
    very end, when the directory above was synced: then it is there, and may be gone after a power
    cut.

    >>> import tempfile, ebbtide
    >>> a, b, new = (f"{tempfile.mkdtemp()}/seen" for _ in range(3))
    >>> for path, key in (a, "order 17"), (b, "order 18"):
    ...     with ebbtide.open(path, ebbtide.Fingerprint(last=1000), hash_seed=7) as seen:
    ...         seen.insert(key)
    >>> ebbtide.remake([a, b], new, ebbtide.Fingerprint(last=2000)).operations
    2
    >>> list(ebbtide.Reader(new).contains_all(["order 17", "order 18"]))
    [1, 1]
    """
    if isinstance(filters, (str, bytes, os.PathLike)):
        raise TypeError("filters: expected several paths, as in [path], found one path")
    options = _options(
        None,
        {},
        {
            "keep_log": keep_log,
            "stripes": stripes,
            "block_bytes": block_bytes,
            "segment_bytes": segment_bytes,
            "mode": mode,
        },
    )
    paths = [_absolute(one) for one in filters]
    return _ebbtide.remake(paths, _absolute(path), text_of(spec), options, share)


def plan_alteration(path: Path, spec: Spec | str) -> AlterationPlan:
    """Returns what ``Filter.alter`` would take for this spec: how much log it reads, whether it
    would forget keys, and memory. Changes nothing, also while the filter is in use.

    Raises NotAFilter, BadParameter, Locked, Damaged, IoError.

    >>> import tempfile, ebbtide
    >>> path = tempfile.mkdtemp()
    >>> with ebbtide.open(path, ebbtide.AgePartitioned(1000), keep_log="24h") as seen:
    ...     seen.insert("order 17")
    ...     plan = ebbtide.plan_alteration(path, ebbtide.AgePartitioned(50_000))
    ...     plan.has_window, plan.first_lsn, plan.memory_after > plan.memory_before
    (True, 1, True)
    """
    return _ebbtide.plan_alteration(_absolute(path), text_of(spec))


def history(path: Path, after: Moment | None = None, durable: bool = True) -> History:
    """Returns the operations in the log of a filter, commit by commit, while others write it.

    The iterator begins at the oldest commit that is kept (``open(keep_log=...)``), or with the
    first one that had not happened at ``after``, and ends where the log ends now. Asked again
    later, it continues with what came since; ``wait`` waits for that. ``durable=False`` also
    returns what a power cut may still take back. No commit comes twice, and none is left out,
    whichever processes write, and whether they are killed. Raises NotKept if the log that it needs
    has been removed.

    >>> import tempfile, ebbtide
    >>> path = tempfile.mkdtemp()
    >>> with ebbtide.open(path, ebbtide.Bloom(1000), durability="always") as seen:
    ...     log = ebbtide.history(path)
    ...     seen.insert("order 17")
    ...     print([operation.kind for commit in log for operation in commit.operations])
    ...     seen.clear()
    ...     print(log.wait("10s").operations[0].kind)
    ['insert']
    clear
    """
    return _ebbtide.history(_absolute(path), after, bool(durable))


def verify(path: Path) -> Report:
    """Checks every byte of a filter's files, also while it is in use.

    >>> import tempfile, ebbtide
    >>> path = tempfile.mkdtemp()
    >>> ebbtide.open(path, ebbtide.Bloom(1000)).close()
    >>> ebbtide.verify(path).sound
    True
    """
    return _ebbtide.verify(_absolute(path))


def salvage(damaged: Path, path: Path) -> Salvaged | None:
    """Recovers the longest provable part of a damaged filter into a new directory.

    Returns what is lost; None, and writes nothing, if the filter is not damaged. docs/damage.md has
    the procedure. Raises Damaged if nothing can be recovered.
    """
    return _ebbtide.salvage(_absolute(damaged), _absolute(path))


def plan(
    spec: Spec | str,
    *,
    stripes: int | None = None,
    block_bytes: int | None = None,
    segment_bytes: int | None = None,
    checkpoint_bytes: int | None = None,
    image: Literal["memory", "beside-log"] | Path | None = None,
) -> Plan:
    """Computes what a filter will take of memory and disk, and its false-positive rate.

    >>> ebbtide.plan(Fingerprint(last=1_000_000)).memory_bytes // 1_000_000
    2
    """
    options = _options(
        None,
        {},
        {
            "stripes": stripes,
            "block_bytes": block_bytes,
            "segment_bytes": segment_bytes,
            "checkpoint_bytes": checkpoint_bytes,
            "image": image,
        },
    )
    return _ebbtide.plan(text_of(spec), options)


