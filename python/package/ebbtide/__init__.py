"""Filters that forget: "was this key seen in the last ten minutes, or among the last million?"

A filter takes 18 to 34 bits a key, is kept on disk, survives ``kill -9``, and is shared by any
number of threads and processes, in Python, Rust, and on the command line.

    import ebbtide

    with ebbtide.open("seen", ebbtide.Fingerprint(window="10m", fpr=0.001)) as seen:
        if seen.check_and_insert(message.id):       # True: it is new
            handle(message)

``open`` opens or creates a ``Filter``, ``Reader`` reads one without changing anything. The kinds
are classes: ``Fingerprint``, ``AgePartitioned`` and ``TimeLimited`` for windows, ``Counting`` and
others for counts. ``Filter.claim`` and ``once`` are for work that may fail. With ``keep_log`` a
filter can be asked as of a moment of its past; ``history`` returns what happened, and
``Filter.alter`` gives it another window, rate, capacity or kind. Errors are subclasses of
``Error``.

Programs that share a filter need releases of the same format, in whatever language: pin the same
version in all of them.
"""

from __future__ import annotations

from . import _alter as _alter
from . import _arrays as _arrays
from . import _async as _async
from . import _history as _history
from ._claims import once
from ._ebbtide import Batch, Claim, Filter, History, Raw, Reader, __version__, raw
from ._errors import (
    BadParameter,
    ClaimsFull,
    Closed,
    Conflict,
    Crowded,
    Damaged,
    Error,
    Exists,
    Forked,
    FullDisk,
    InProgress,
    IoError,
    LeaseLost,
    Locked,
    Mismatch,
    NotAFilter,
    NotKept,
    Poisoned,
    Retired,
    TimeAhead,
    TooLate,
    Unsupported,
    WrongVersion,
)
from ._history import share_of
from ._open import history, open, plan, plan_alteration, remake, restore, salvage, verify
from ._specs import (
    AgePartitioned,
    BlockTiming,
    Bloom,
    Counting,
    Decaying,
    DecayingOptimized,
    DoubleBuffering,
    DynamicCount,
    Fingerprint,
    Importance2c,
    ImportanceH,
    ImportanceMc,
    Spec,
    Spectral,
    Stable,
    TimeLimited,
    Timing,
    TwoBuffer,
)
from ._types import (
    Admission,
    AlterationPlan,
    Altered,
    Cardinality,
    Commit,
    Digest,
    Duration,
    Estimate,
    FileReport,
    Key,
    Moment,
    OpenClaim,
    Operation,
    Plan,
    Remade,
    Report,
    Salvaged,
    Stat,
    Time,
)

__all__ = [
    "Admission",
    "AgePartitioned",
    "AlterationPlan",
    "Altered",
    "BadParameter",
    "Batch",
    "BlockTiming",
    "Bloom",
    "Cardinality",
    "Claim",
    "ClaimsFull",
    "Closed",
    "Commit",
    "Conflict",
    "Counting",
    "Crowded",
    "Damaged",
    "Decaying",
    "DecayingOptimized",
    "Digest",
    "DoubleBuffering",
    "Duration",
    "DynamicCount",
    "Error",
    "Estimate",
    "Exists",
    "FileReport",
    "Filter",
    "Fingerprint",
    "Forked",
    "FullDisk",
    "History",
    "Importance2c",
    "ImportanceH",
    "ImportanceMc",
    "InProgress",
    "IoError",
    "Key",
    "LeaseLost",
    "Locked",
    "Mismatch",
    "Moment",
    "NotAFilter",
    "NotKept",
    "OpenClaim",
    "Operation",
    "Plan",
    "Poisoned",
    "Raw",
    "Reader",
    "Remade",
    "Report",
    "Retired",
    "Salvaged",
    "Spec",
    "Spectral",
    "Stable",
    "Stat",
    "Time",
    "TimeAhead",
    "TimeLimited",
    "Timing",
    "TooLate",
    "TwoBuffer",
    "Unsupported",
    "WrongVersion",
    "__version__",
    "history",
    "once",
    "open",
    "plan",
    "plan_alteration",
    "raw",
    "remake",
    "restore",
    "salvage",
    "share_of",
    "verify",
]
