"""The exceptions of the module. The extension finds them here by the code of the engine's error."""

from __future__ import annotations

from datetime import datetime
from typing import Any


class Error(Exception):
    """Any error of ebbtide. The message says what was expected, what was found, and what to do.

    ``code`` and ``name`` are the engine's code of the error: a number and a name that never change
    between versions, the same in all languages. Raised by ``check_and_insert_all``, it has the
    answers for the keys that were inserted before, in order (``answers``).
    """

    code: int = 0
    name: str = ""
    answers: bytes


class Damaged(Error):
    """A file of a filter has invalid content; docs/damage.md has the remedies.

    ``path`` is the file, ``offset`` the byte in it, ``expected`` and ``found`` what should be there
    and what is, ``remedy`` what to do.
    """

    path: str
    offset: int
    expected: str
    found: str
    remedy: str


class WrongVersion(Error):
    """A file was written by a version of the format that this release does not read.

    ``path`` is the file, ``expected`` and ``found`` are version numbers. Programs that share a
    filter need releases of the same format, in whatever language they are written.
    """

    path: str
    expected: int
    found: int


class NotAFilter(Error):
    """There is no filter in this directory (``path``)."""

    path: str


class Exists(Error):
    """A filter, or a file of another program, is where a new one should be created (``path``)."""

    path: str


class Mismatch(Error):
    """The filter is of another kind, or was created with other parameters, than the spec says.

    ``what`` is the parameter, ``expected`` what the spec says, ``found`` what the filter has.
    """

    path: str
    what: str
    expected: str
    found: str


class Locked(Error):
    """Another handle has been opening or closing the filter for a minute, or has it open where that
    is not allowed."""

    path: str


class Crowded(Error):
    """The filter has as many open handles as it can have (126)."""

    path: str


class Forked(Error):
    """The filter was opened before this process was forked, with ``reopen_after_fork=False``; or
    the claim, or the history, is the parent's."""

    path: str


class Closed(Error, ValueError):
    """The filter was closed. (Files that are closed raise ``ValueError``, too.)"""

    path: str


class Retired(Error):
    """The directory was removed or replaced, or other processes took this one for dead: drop the
    object and open the filter again."""

    path: str


class Poisoned(Error):
    """Writes are refused because a sync failed earlier: close the filter in every process, and open
    it again to recover what the disk holds."""

    path: str


class Conflict(Error):
    """Another caller inserted a key that was new to the batch: ``clear`` the batch, and take the
    same messages again. Nothing has happened.

    ``path`` is the filter, ``operation`` the number of the operation in the batch, from 0.
    """

    path: str
    operation: int


class LeaseLost(Error):
    """The claim of a key is over: the work was done too late, and somebody else may be doing it.
    Nothing has happened.

    ``path`` is the filter, ``token`` that of the claim.
    """

    path: str
    token: int


class ClaimsFull(Error):
    """The filter holds as many claims (``most``) as it can: confirm or release some, or wait until
    a lease is over."""

    path: str
    most: int


class NotKept(Error):
    """The log of a filter does not have a moment of its past: it was before what is kept, or has
    not come yet.

    ``path`` is the filter, ``wanted`` the moment, ``first`` the LSN from which on every moment is
    kept, ``end`` the first LSN that the log does not have.
    """

    path: str
    wanted: str
    first: int
    end: int


class InProgress(Error):
    """Somebody else works on the key of a function that runs ``once``; ``until`` is when that lease
    ends, if it is not renewed, and the time to try again."""

    name: str = "in-progress"
    until: datetime | None


class TooLate(Error):
    """The key's time lies before the window: it was not inserted, and nobody knows if it is new."""

    name: str = "too-late"


class BadParameter(Error, ValueError):
    """A parameter is out of bounds or does not fit the others.

    ``parameter`` is its name, ``expected`` what it must be, ``found`` what was given.
    """

    parameter: str
    expected: str
    found: str


class TimeAhead(Error, ValueError):
    """A key's time lies further ahead of the clock than ``max_lead`` allows."""


class Unsupported(Error, TypeError):
    """Filters of this kind have no such operation (``kind``, ``operation``)."""

    kind: str
    operation: str


class IoError(Error, OSError):
    """The operating system refused an operation (``errno``, ``filename``)."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        attributes = {"errno": self.errno, "filename": self.filename, **self.__dict__}
        return (_restored, (type(self), self.args, attributes))


class FullDisk(IoError):
    """The disk is full, or a quota exhausted. Nothing is lost: free some space and try again;
    ``check_and_insert_all`` with the keys after those of ``answers``."""


#: The classes by the names of the engine's codes.
BY_CODE: dict[str, type[Error]] = {
    "io": IoError,
    "full-disk": FullDisk,
    "damaged": Damaged,
    "version": WrongVersion,
    "not-a-filter": NotAFilter,
    "exists": Exists,
    "occupied": Exists,
    "mismatch": Mismatch,
    "parameter": BadParameter,
    "locked": Locked,
    "crowded": Crowded,
    "forked": Forked,
    "closed": Closed,
    "retired": Retired,
    "poisoned": Poisoned,
    "time-ahead": TimeAhead,
    "unsupported": Unsupported,
    "conflict": Conflict,
    "lease-lost": LeaseLost,
    "claims-full": ClaimsFull,
    "not-kept": NotKept,
}


def make(code: int, name: str, message: str, attributes: dict[str, Any]) -> Error:
    """Returns the exception for an error of the engine."""
    error = BY_CODE.get(name, Error)(message)
    error.code, error.name = code, name
    for attribute, value in attributes.items():
        setattr(error, attribute, value)
    return error


def _restored(kind: type[Error], args: tuple[Any, ...], attributes: dict[str, Any]) -> Error:
    """Returns a pickled exception."""
    error = kind(*args)
    for attribute, value in attributes.items():
        setattr(error, attribute, value)
    return error
