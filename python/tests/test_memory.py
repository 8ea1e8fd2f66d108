"""A million calls of each kind leave no memory behind, errors included."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable

import numpy

import ebbtide

from .conftest import EFFORT

CALLS = int(50_000 * EFFORT)
#: What allocators may keep, for all calls: a byte for each of a million would show.
SLACK = 3 << 20


def resident() -> int:
    """Private memory of the process: without mapped files, which hold the filter."""
    with open("/proc/self/statm") as statm:
        _, all_pages, shared, *_ = map(int, statm.read().split())
    return (all_pages - shared) * os.sysconf("SC_PAGESIZE")


def refused(call: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        try:
            call()
        except (ebbtide.Error, TypeError, ValueError):
            return
        raise AssertionError("an error was expected")

    return run


def worked_on(seen: ebbtide.Filter) -> None:
    """A claim that fails, and one that does not."""
    for works in (False, True):
        try:
            with seen.claim("work", lease=30) as claim:
                claim.extend(60)
                if not works:
                    raise ValueError
        except ValueError:
            pass
    seen.remove("work")


def calls(seen: ebbtide.Filter, timed: ebbtide.Filter) -> dict[str, Callable[[], object]]:
    many = [f"key {number}" for number in range(50)]
    array = numpy.array(many, dtype="S16")
    numbers = numpy.arange(50, dtype="u8")
    late = 1_000_000_000.0
    timed.insert("now", time=1_700_000_000.0)
    seen.claim("held", lease="1d").keep()
    return {
        "insert": lambda: seen.insert("key"),
        "insert, bytes": lambda: seen.insert(b"key"),
        "insert, bytearray": lambda: seen.insert(bytearray(b"key")),
        "insert, memoryview": lambda: seen.insert(memoryview(b"key")),
        "insert, not ASCII": lambda: seen.insert("kéy"[:] + "ä"),
        "check_and_insert": lambda: seen.check_and_insert("key", weight=1),
        "contains": lambda: "key" in seen,
        "estimate": lambda: seen.estimate("key"),
        "insert_and_estimate": lambda: seen.insert_and_estimate("key"),
        "insert_up_to": lambda: seen.insert_up_to("key", 1),
        "remove": lambda: seen.remove("key"),
        "age": lambda: timed.age("now"),
        "seen_within": lambda: timed.seen_within("now", "1s"),
        "posterior": lambda: seen.posterior("key", 0.5),
        "frequency": refused(lambda: seen.frequency("key")),
        "claim, worked on": lambda: worked_on(seen),
        "claim, dropped": lambda: seen.claim("dropped", lease=30),
        "claim, in progress": lambda: seen.claim("held", lease=30).until,
        "claim, kept": lambda: seen.claim("kept", lease=30).keep() and seen.end_claim("kept"),
        "claim, not the caller's": refused(lambda: seen.claim("held", lease=30).confirm()),
        "claim, lost": refused(lambda: seen.resume_claim("lost", 1).confirm()),
        "claims": seen.claims,
        "once": ebbtide.once(seen, key=lambda: "once", lease=30)(dict),
        "too late": refused(lambda: timed.insert("key", time=late)),
        "no key": refused(lambda: seen.insert(7)),  # type: ignore[arg-type]
        "wrong weight": refused(lambda: seen.insert("key", weight=0.5)),
        "repr": lambda: repr(seen),
        "parameters": lambda: (seen.parameters, seen.path, seen.kind),
        "insert_all": lambda: seen.insert_all(many),
        "check_and_insert_all": lambda: seen.check_and_insert_all(iter(many)),
        "contains_all, array": lambda: seen.contains_all(array),
        "contains_all, raw": lambda: seen.contains_all(ebbtide.raw(numbers)),
        "estimate_all": lambda: seen.estimate_all(many),
        "only_new": lambda: list(seen.only_new(many, batch=10)),
        "bulk, no key": refused(lambda: seen.insert_all([*many, 7])),  # type: ignore[list-item]
    }


def test_calls_leave_no_memory_behind(path: str) -> None:
    counting = ebbtide.Counting(1000, counter_bits=16)
    with (
        ebbtide.open(path, counting, durability="never", background=False) as seen,
        ebbtide.open(path + "-timed", ebbtide.TimeLimited("10m"), background=False) as timed,
    ):
        # Heavier calls less often; the insert's log is in mapped files.
        for name, call in calls(seen, timed).items():
            count = CALLS // 50 if "all" in name or "new" in name or "bulk" in name else CALLS
            for _ in range(count // 10 + 200):
                call()
            gc.collect()
            before, blocks = resident(), sys.getallocatedblocks()
            for _ in range(count):
                call()
            gc.collect()
            more_blocks = sys.getallocatedblocks() - blocks
            assert more_blocks < count / 20 + 200, f"{name}: {more_blocks} blocks"
            grown = resident() - before
            assert grown < SLACK, f"{name}: {grown} bytes after {count} calls"


def test_opening_and_closing_leaves_neither_memory_nor_descriptors_behind(path: str) -> None:
    def once() -> None:
        with ebbtide.open(path, ebbtide.Bloom(1000), background=False) as seen:
            seen.insert("a")
        with ebbtide.Reader(path) as reader:
            assert "a" in reader

    for _ in range(20):
        once()
    gc.collect()
    before, descriptors = resident(), len(os.listdir("/proc/self/fd"))
    for _ in range(int(150 * EFFORT)):
        once()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= descriptors
    assert resident() - before < SLACK
