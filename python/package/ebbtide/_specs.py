"""The kinds of filters, each with its parameters."""

from __future__ import annotations

import operator
from dataclasses import MISSING, Field, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal, overload

from ._dataclasses import argument, dataclass_transform, make
from ._ebbtide import parse_duration
from ._errors import BadParameter
from ._types import Duration


#: Nanoseconds of each unit of numpy that is a duration.
_NANOSECONDS = {
    "W": 604_800_000_000_000,
    "D": 86_400_000_000_000,
    "h": 3_600_000_000_000,
    "m": 60_000_000_000,
    "s": 1_000_000_000,
    "ms": 1_000_000,
    "us": 1_000,
    "ns": 1,
}


def numpy_micros(value: Any, name: str) -> int | None:
    """Returns a ``numpy.timedelta64`` in microseconds; None if the value is something else."""
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    if kind not in ("m", "M"):
        return None
    import numpy

    unit, count = numpy.datetime_data(value.dtype)
    if kind == "M" or unit not in _NANOSECONDS or value != value:
        raise TypeError(
            f"{name}: expected a numpy.timedelta64 in weeks, days, hours, minutes, seconds, ms, us "
            f"or ns, such as numpy.timedelta64(600, 's'), found {value!r}"
        )
    # In Python's integers: numpy's own conversion overflows silently.
    return int(value.astype("i8")) * count * _NANOSECONDS[unit] // 1_000


def to_timedelta(value: Duration, name: str) -> timedelta:
    """Returns a duration as a ``timedelta``."""
    if isinstance(value, timedelta):
        return value
    if isinstance(value, str):
        try:
            return timedelta(microseconds=parse_duration(value))
        except BadParameter as error:
            raise _bad(name, error.expected, repr(value)) from None
    found = numpy_micros(value, name)
    if found is not None:
        try:
            return timedelta(microseconds=found)
        except OverflowError:
            raise _bad(name, "a duration that timedelta can hold", repr(value)) from None
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise TypeError(
            f"{name}: expected a timedelta, a number of seconds, or text with a unit such as "
            f"'10m', found {type(value).__name__}"
        )
    try:
        return timedelta(seconds=float(value))
    except (OverflowError, ValueError):
        raise _bad(name, "a number of seconds", repr(value)) from None


def micros(duration: timedelta, name: str) -> int:
    """Returns a duration in microseconds."""
    if duration < timedelta(0):
        raise _bad(name, "a duration of zero or more", str(duration))
    return duration // timedelta(microseconds=1)


def _bad(name: str, expected: str, found: str) -> BadParameter:
    error = BadParameter(f"parameter {name}: expected {expected}, found {found}")
    error.code, error.name = 9, "parameter"
    error.parameter, error.expected, error.found = name, expected, found
    return error


#: The parameter of each field of a kind, and the form of its values.
PARAMETERS: dict[str, tuple[str, str]] = {
    "aim": ("aim", "word"),
    "batch": ("block-size", "count"),
    "bits": ("bits", "count"),
    "bytes": ("bytes", "count"),
    "capacity": ("capacity", "count"),
    "cells": ("cells", "count"),
    "columns": ("columns", "count"),
    "counter_bits": ("counter-bits", "count"),
    "decay": ("decay", "word"),
    "epoch": ("epoch", "duration"),
    "error": ("error", "number"),
    "excess": ("excess", "number"),
    "exponent": ("exponent", "number"),
    "fpr": ("fpr", "number"),
    "fraction_bits": ("fraction-bits", "count"),
    "front": ("front", "word"),
    "front_bits": ("front-bits", "count"),
    "front_k": ("front-k", "count"),
    "front_keys": ("front-keys", "count"),
    "generation": ("generation", "count"),
    "generations": ("generations", "count"),
    "growth": ("growth", "word"),
    "horizon": ("horizon", "count"),
    "importance_max": ("importance-max", "number"),
    "k": ("k", "count"),
    "K": ("K", "count"),
    "l": ("l", "count"),
    "lambda_": ("lambda", "number"),
    "last": ("window-items", "count"),
    "load": ("load", "number"),
    "max": ("max", "count"),
    "max_load": ("max-load", "number"),
    "max_memory": ("max-memory", "size"),
    "mean_count": ("mean-count", "number"),
    "moves": ("moves", "count"),
    "P": ("P", "count"),
    "padding": ("padding", "count"),
    "policy": ("policy", "word"),
    "pool": ("pool", "number"),
    "rate": ("rate", "number"),
    "slots": ("slots", "count"),
    "terms": ("terms", "word"),
    "timers": ("timers", "count"),
    "weights": ("weights", "word"),
    "window": ("window", "duration"),
    "window_epochs": ("window-epochs", "count"),
    "words": ("words", "count"),
}


def _checked(value: Any, name: str, form: str) -> Any:
    """Returns the value of a parameter in the type of its form."""
    if form == "duration":
        return to_timedelta(value, name)
    if form == "size" and isinstance(value, str):
        return _word(value, name, "a size such as 64MiB")
    if form in ("count", "size"):
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(f"{name}: expected an int, found {type(value).__name__}")
        return operator.index(value)
    if form == "number":
        if isinstance(value, (bool, str)) or not hasattr(value, "__float__"):
            raise TypeError(f"{name}: expected a number, found {type(value).__name__}")
        return float(value)
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected a str, found {type(value).__name__}")
    return _word(value, name, "a word")


def _word(value: str, name: str, expected: str) -> str:
    """Returns a text that is one word."""
    if not value or any(letter.isspace() for letter in value):
        raise _bad(name, expected, repr(value))
    return value


@dataclass_transform(
    kw_only_default=True, frozen_default=True, field_specifiers=(argument,)
)
class Spec:
    """A kind of filter with its parameters; ``str(spec)`` is the text that the command line takes.

    Parameters that are None are derived from the others. Their bounds are checked when a filter is
    planned, created or opened.
    """

    kind: ClassVar[str] = ""

    if TYPE_CHECKING:
        # As every dataclass has them, for ``dataclasses.fields`` and ``replace``.
        __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        make(cls)

    def __init__(self) -> None:
        # The kinds are dataclasses, each with an ``__init__`` of its own.
        raise TypeError("Spec is the base of the kinds: use one of them, such as TimeLimited")

    def __post_init__(self) -> None:
        for part in fields(self):
            value = getattr(self, part.name)
            if value is not None:
                value = _checked(value, part.name, PARAMETERS[part.name][1])
                object.__setattr__(self, part.name, value)
            elif part.default is MISSING:
                raise TypeError(f"{part.name}: expected a value, found None")

    def __str__(self) -> str:
        words = [self.kind]
        for part in fields(self):
            value = getattr(self, part.name)
            if isinstance(value, timedelta):
                value = f"{micros(value, part.name)}us"
            if value is not None:
                words.append(f"{PARAMETERS[part.name][0]}={value}")
        return " ".join(words)

    def __repr__(self) -> str:
        given = [(part.name, getattr(self, part.name)) for part in fields(self)]
        shown = ", ".join(f"{name}={value!r}" for name, value in given if value is not None)
        return f"{type(self).__name__}({shown})"


def _one_window(spec: Fingerprint) -> None:
    if (spec.last is None) == (spec.window is None):
        raise TypeError("Fingerprint takes either last= (inserts) or window= (a time)")


class Fingerprint(Spec):
    """A window of the last inserts, or of a time, in the least memory; the kind to begin with.

    ``last`` is for how many further inserts a key stays, or ``window`` for how long, and up to one
    generation more: a 10th to a 36th of the window, by the rate, and a larger part of a window of a
    few dozen inserts. ``fpr`` is the false-positive rate (0.001), ``rate`` the new keys a second to
    begin with. A window of a time grows by the keys that come, up to ``max_memory`` bytes (or a
    text such as ``"64MiB"``). There no key is lost, but more new keys are reported as present.
    ``max_load`` is the highest share of slots in use, such as 0.8: inserts a third faster, for a
    fifth more memory.

    >>> Fingerprint(window="10m", fpr=0.001)
    Fingerprint(window=datetime.timedelta(seconds=600), fpr=0.001)
    >>> str(Fingerprint(last=1_000_000))
    'fingerprint window-items=1000000'
    """

    kind: ClassVar[str] = "fingerprint"
    last: int | None = None
    window: Duration | None = None
    fpr: float | None = None
    rate: float | None = None
    max_load: float | None = None
    max_memory: int | str | None = None
    growth: Literal["keys", "rate"] | None = None
    slots: int | None = None
    bits: int | None = None
    generations: int | None = None
    bytes: int | None = None
    moves: int | None = None
    words: int | None = None

    if TYPE_CHECKING:

        @overload
        def __init__(
            self,
            *,
            last: int,
            window: None = None,
            fpr: float | None = None,
            rate: None = None,
            max_load: float | None = None,
            max_memory: None = None,
            growth: None = None,
            slots: int | None = None,
            bits: int | None = None,
            generations: int | None = None,
            bytes: int | None = None,
            moves: int | None = None,
            words: int | None = None,
        ) -> None: ...
        @overload
        def __init__(
            self,
            *,
            last: None = None,
            window: Duration,
            fpr: float | None = None,
            rate: float | None = None,
            max_load: float | None = None,
            max_memory: int | str | None = None,
            growth: Literal["keys", "rate"] | None = None,
            slots: int | None = None,
            bits: int | None = None,
            generations: int | None = None,
            bytes: int | None = None,
            moves: int | None = None,
            words: None = None,
        ) -> None: ...
        def __init__(self, **_parameters: Any) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        _one_window(self)


class AgePartitioned(Spec):
    """A window of the last ``last`` inserts that overruns by little. ``k`` and ``l`` override the
    numbers of slices; the other parameters are planned (docs/papers.md).

    >>> str(AgePartitioned(10_000, fpr=0.01))
    'age-partitioned window-items=10000 fpr=0.01'
    """

    kind: ClassVar[str] = "age-partitioned"
    last: int = argument(kw_only=False)
    fpr: float | None = None
    k: int | None = None
    l: int | None = None  # noqa: E741
    generation: int | None = None
    columns: int | None = None
    words: int | None = None


class TimeLimited(Spec):
    """A window of a time, ``window``, at any rate of keys. ``rate`` is the new keys a second to
    begin with; the filter grows and shrinks with the rate, up to ``max_memory`` bytes (or a text
    such as ``"64MiB"``). There no key is lost, but more new keys are reported as present.

    >>> from datetime import timedelta
    >>> TimeLimited(timedelta(minutes=10)) == TimeLimited(600) == TimeLimited("10m")
    True
    """

    kind: ClassVar[str] = "time-limited"
    window: Duration = argument(kw_only=False)
    fpr: float | None = None
    rate: float | None = None
    max_memory: int | str | None = None
    aim: Literal["worst", "steady"] | None = None
    k: int | None = None
    l: int | None = None  # noqa: E741
    columns: int | None = None
    load: float | None = None


class Timing(Spec):
    """A window of exactly the last ``last`` inserts, and how many inserts ago each key was seen."""

    kind: ClassVar[str] = "timing"
    last: int = argument(kw_only=False)
    fpr: float | None = None
    bits: int | None = None
    k: int | None = None
    timers: int | None = None
    padding: int | None = None


class BlockTiming(Spec):
    """As ``Timing``, with ages in batches of ``batch`` inserts, in a fifth of the memory."""

    kind: ClassVar[str] = "block-timing"
    last: int = argument(kw_only=False)
    fpr: float | None = None
    batch: int | None = None
    bits: int | None = None
    k: int | None = None
    timers: int | None = None
    padding: int | None = None


class DoubleBuffering(Spec):
    """A window of the last ``last`` inserts, by two Bloom filters, one of which answers."""

    kind: ClassVar[str] = "double-buffering"
    last: int = argument(kw_only=False)
    fpr: float | None = None
    bits: int | None = None
    k: int | None = None


class TwoBuffer(Spec):
    """A window of the last ``last`` inserts, by two Bloom filters that both answer."""

    kind: ClassVar[str] = "two-buffer"
    last: int = argument(kw_only=False)
    fpr: float | None = None
    bits: int | None = None
    k: int | None = None


class Bloom(Spec):
    """A Bloom filter for ``capacity`` distinct keys, which it never forgets."""

    kind: ClassVar[str] = "bloom"
    capacity: int = argument(kw_only=False)
    fpr: float | None = None
    bits: int | None = None
    k: int | None = None


class Counting(Spec):
    """Counts up to ``2 ** counter_bits - 1`` (15), of ``capacity`` distinct keys; they can be
    removed."""

    kind: ClassVar[str] = "counting"
    capacity: int = argument(kw_only=False)
    fpr: float | None = None
    counter_bits: int | None = None
    cells: int | None = None
    k: int | None = None


class Spectral(Spec):
    """Counts of any size, of ``capacity`` distinct keys. ``policy`` is ``"ms"`` (minimum selection,
    the default), ``"mi"`` (minimal increase, without removal) or ``"rm"`` (recurring minimum)."""

    kind: ClassVar[str] = "spectral"
    capacity: int = argument(kw_only=False)
    fpr: float | None = None
    policy: Literal["ms", "mi", "rm"] | None = None
    cells: int | None = None
    k: int | None = None


class DynamicCount(Spec):
    """Counts of any size, of ``capacity`` distinct keys, of about ``mean_count`` inserts each."""

    kind: ClassVar[str] = "dynamic-count"
    capacity: int = argument(kw_only=False)
    fpr: float | None = None
    mean_count: float | None = None
    lambda_: float | None = None
    cells: int | None = None
    k: int | None = None


class Decaying(Spec):
    """Counts of which each ``epoch`` leaves the factor ``lambda_``, of ``capacity`` distinct keys.

    Instead of ``lambda_``, ``decay`` may be ``"sliding-window"`` or ``"linear"`` with
    ``window_epochs``, ``"polynomial"`` with ``exponent`` and ``horizon``, or ``"weights"`` with
    ``weights``, what each age in epochs leaves, as in ``"1,0.5,0.25"``.

    >>> str(Decaying(1000, 0.5, "1m"))
    'decaying capacity=1000 lambda=0.5 epoch=60000000us'
    """

    kind: ClassVar[str] = "decaying"
    capacity: int = argument(kw_only=False)
    lambda_: float | None = argument(default=None, kw_only=False)
    epoch: Duration | None = argument(default=None, kw_only=False)
    fpr: float | None = None
    decay: (
        Literal["exponential", "polynomial", "sliding-window", "linear", "weights"] | None
    ) = None
    window_epochs: int | None = None
    exponent: float | None = None
    horizon: int | None = None
    excess: float | None = None
    terms: str | None = None
    weights: str | None = None
    counter_bits: int | None = None
    fraction_bits: int | None = None
    cells: int | None = None
    k: int | None = None

    if TYPE_CHECKING:

        @overload
        def __init__(
            self,
            capacity: int,
            lambda_: float,
            epoch: Duration,
            *,
            decay: Literal["exponential"] | None = None,
            fpr: float | None = None,
            excess: float | None = None,
            terms: str | None = None,
            counter_bits: int | None = None,
            fraction_bits: int | None = None,
            cells: int | None = None,
            k: int | None = None,
        ) -> None: ...
        @overload
        def __init__(
            self,
            capacity: int,
            *,
            epoch: Duration,
            decay: Literal["polynomial", "sliding-window", "linear", "weights"],
            window_epochs: int | None = None,
            exponent: float | None = None,
            horizon: int | None = None,
            weights: str | None = None,
            fpr: float | None = None,
            excess: float | None = None,
            terms: str | None = None,
            counter_bits: int | None = None,
            fraction_bits: int | None = None,
            cells: int | None = None,
            k: int | None = None,
        ) -> None: ...
        def __init__(self, *_arguments: Any, **_parameters: Any) -> None: ...


class DecayingOptimized(Spec):
    """As ``Decaying``, in less memory if few keys are counted often. ``fpr`` is the rate of absent
    keys, ``error`` the share of keys that may be counted too high."""

    kind: ClassVar[str] = "decaying-optimized"
    capacity: int = argument(kw_only=False)
    lambda_: float = argument(kw_only=False)
    epoch: Duration = argument(kw_only=False)
    fpr: float | None = None
    error: float | None = None
    counter_bits: int | None = None
    fraction_bits: int | None = None
    front: Literal["swapped", "plain", "none"] | None = None
    front_bits: int | None = None
    front_k: int | None = None
    front_keys: int | None = None
    pool: float | None = None
    cells: int | None = None
    k: int | None = None


class Stable(Spec):
    """``cells`` cells of values up to ``max``; a key has ``K`` of them, and an insert decrements
    ``P``: keys are forgotten at random, the older the more likely."""

    kind: ClassVar[str] = "stable"
    cells: int = argument(kw_only=False)
    max: int = argument(kw_only=False)
    K: int = argument(kw_only=False)
    P: int | None = argument(default=None, kw_only=False)
    fpr: float | None = None


class _Importance(Spec):
    cells: int = argument(kw_only=False)
    max: int = argument(kw_only=False)
    K: int = argument(kw_only=False)
    P: int | None = argument(default=None, kw_only=False)
    fpr: float | None = None
    importance_max: float | None = None


class Importance2c(_Importance):
    """As ``Stable``, and keys of high importance (``weight=``) are kept longer: two classes."""

    kind: ClassVar[str] = "importance-2c"


class ImportanceMc(_Importance):
    """As ``Stable``, and keys are kept the longer the higher their importance (``weight=``)."""

    kind: ClassVar[str] = "importance-mc"


class ImportanceH(_Importance):
    """As ``ImportanceMc``, and inserts spare cells of high values."""

    kind: ClassVar[str] = "importance-h"


SPECS: tuple[type[Spec], ...] = (
    Fingerprint,
    AgePartitioned,
    TimeLimited,
    Timing,
    BlockTiming,
    DoubleBuffering,
    TwoBuffer,
    Bloom,
    Counting,
    Spectral,
    DynamicCount,
    Decaying,
    DecayingOptimized,
    Stable,
    Importance2c,
    ImportanceMc,
    ImportanceH,
)
"""All kinds."""
