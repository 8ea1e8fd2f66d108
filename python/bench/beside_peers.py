"""One stream of new keys on ebbtide and on what Python programs use instead, in turns.

    python bench/beside_peers.py [KEYS] [ROUNDS]

Every round runs all of them one after the other, so that other work on the machine meets all of
them. The table has the time that passes (median over the rounds, least to most), and the processor
time of the calling thread, which other work on the machine disturbs less; each beside ebbtide's
single call. Read the ratios, not the nanoseconds. Peers that are not installed are left out
(pip install 'ebbtide[bench]').
"""

from __future__ import annotations

import array
import gc
import importlib
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import ebbtide

WINDOW = 1_000_000
FPR = 0.001

Keys = list[str]
#: Prepares a round (not timed), and returns what is timed, for this number of keys.
Subject = Callable[[Keys], Callable[[], object]]

KEEPS = {
    "ebbtide": "everything: shared by processes, expiring, on disk",
    "rbloom": "nothing: no expiry, one process",
    "pybloomfiltermmap3": "pages, when the kernel writes them: no expiry",
    "set": "nothing: some 100 bytes a key",
    "cachetools": "nothing: one thread",
    "diskcache": "everything: shared, expiring",
}


def optional(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def one_by_one(function: Callable[[str], object], keys: Keys) -> Callable[[], object]:
    def run() -> None:
        for key in keys:
            function(key)

    return run


def of_ebbtide(home: Path, stack: ExitStack) -> dict[str, Subject]:
    def made(name: str, spec: ebbtide.Spec) -> ebbtide.Filter:
        return stack.enter_context(ebbtide.open(home / name, spec))

    seen = made("items", ebbtide.AgePartitioned(WINDOW, fpr=FPR))
    prints = made("prints", ebbtide.Fingerprint(last=WINDOW, fpr=FPR))
    timed = made("timed", ebbtide.TimeLimited("10m", fpr=FPR, rate=2000))
    number = iter(range(1 << 62))

    def bulk(keys: Keys) -> Callable[[], object]:
        parts = [keys[at : at + 1000] for at in range(0, len(keys), 1000)]
        return lambda: [seen.check_and_insert_all(part) for part in parts]

    def raw(keys: Keys) -> Callable[[], object]:
        # As many keys of 16 bytes, in parts of 1,000.
        items = array.array("Q", (next(number) for _ in range(2 * len(keys))))
        view = memoryview(items.tobytes()).cast("B")
        rows = [bytes(view[at : at + 16_000]) for at in range(0, len(view), 16_000)]
        assert numpy is not None
        parts = [numpy.frombuffer(row, "V16") for row in rows]
        return lambda: [seen.check_and_insert_all(ebbtide.raw(part)) for part in parts]

    def operator(keys: Keys) -> Callable[[], object]:
        seen.insert_all(keys)

        def run() -> None:
            for key in keys:
                key in seen  # noqa: B015

        return run

    def threads(keys: Keys) -> Callable[[], object]:
        half = len(keys) // 2

        def run() -> None:
            both = [
                threading.Thread(target=one_by_one(seen.check_and_insert, part))
                for part in (keys[:half], keys[half:])
            ]
            for thread in both:
                thread.start()
            for thread in both:
                thread.join()

        return run

    numpy = optional("numpy")
    subjects: dict[str, Subject] = {
        "ebbtide check_and_insert (age-partitioned)": lambda keys: one_by_one(
            seen.check_and_insert, keys
        ),
        "ebbtide check_and_insert_all, 1,000 str": bulk,
        "ebbtide check_and_insert_all, raw": raw,
        "ebbtide check_and_insert, two threads": threads,
        "ebbtide in": operator,
        "ebbtide check_and_insert (fingerprint)": lambda keys: one_by_one(
            prints.check_and_insert, keys
        ),
        "ebbtide check_and_insert (time-limited)": lambda keys: one_by_one(
            timed.check_and_insert, keys
        ),
    }
    if numpy is None:
        del subjects["ebbtide check_and_insert_all, raw"]
    return subjects


def of_peers(home: Path) -> dict[str, Subject]:
    subjects: dict[str, Subject] = {}
    if rbloom := optional("rbloom"):
        bloom = rbloom.Bloom(WINDOW * 3, FPR)

        def pair(keys: Keys) -> Callable[[], object]:
            def run() -> None:
                for key in keys:
                    if key not in bloom:
                        bloom.add(key)

            return run

        def rbloom_in(keys: Keys) -> Callable[[], object]:
            bloom.update(keys)

            def run() -> None:
                for key in keys:
                    key in bloom  # noqa: B015

            return run

        subjects["rbloom in and add"] = pair
        subjects["rbloom in"] = rbloom_in
    if mapped := optional("pybloomfilter"):
        filter = mapped.BloomFilter(WINDOW * 3, FPR, str(home / "mapped"))
        subjects["pybloomfiltermmap3 add"] = lambda keys: one_by_one(filter.add, keys)

    def plain(keys: Keys) -> Callable[[], object]:
        seen: set[str] = set()

        def run() -> None:
            for key in keys:
                if key not in seen:
                    seen.add(key)

        return run

    subjects["set"] = plain
    if cachetools := optional("cachetools"):
        cache = cachetools.TTLCache(WINDOW, 600)

        def ttl(keys: Keys) -> Callable[[], object]:
            keys = keys[: len(keys) // 4]

            def run() -> None:
                for key in keys:
                    if key not in cache:
                        cache[key] = True

            return run

        subjects["cachetools TTLCache (a quarter)"] = ttl
    if diskcache := optional("diskcache"):
        disk = diskcache.Cache(str(home / "disk"))

        def add(keys: Keys) -> Callable[[], object]:
            keys = keys[: len(keys) // 100]

            def run() -> None:
                for key in keys:
                    disk.add(key, True, expire=600)

            return run

        subjects["diskcache add (a hundredth)"] = add
    return subjects


def share(name: str) -> float:
    """The share of the keys that a subject takes: slow ones take fewer."""
    return 0.25 if "quarter" in name else 0.01 if "hundredth" in name else 1.0


def main() -> None:
    count = int(float(sys.argv[1])) if len(sys.argv) > 1 else 200_000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    times: dict[str, list[float]] = {}
    processor: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as home, ExitStack() as stack:
        subjects = {**of_ebbtide(Path(home), stack), **of_peers(Path(home))}
        for turn in range(rounds):
            for at, (name, prepare) in enumerate(subjects.items()):
                keys = [f"{turn:02}{at:02}{number:012}" for number in range(count)]
                run = prepare(keys)
                gc.collect()
                start, start_here = time.perf_counter(), time.thread_time()
                run()
                took, took_here = time.perf_counter() - start, time.thread_time() - start_here
                nanoseconds = 1e9 / (count * share(name))
                times.setdefault(name, []).append(took * nanoseconds)
                processor.setdefault(name, []).append(took_here * nanoseconds)
    show(count, rounds, times, processor)


def show(
    count: int, rounds: int, times: dict[str, list[float]], processor: dict[str, list[float]]
) -> None:
    base, base_here = (
        statistics.median(all["ebbtide check_and_insert (age-partitioned)"])
        for all in (times, processor)
    )
    print(f"{count} new keys of 16 characters a round, {rounds} rounds in turns, ns a key\n")
    print("| | passes | least to most | ratio | processor | ratio | keeps |")
    print("|---|---|---|---|---|---|---|")
    for name, all_times in times.items():
        median, here = statistics.median(all_times), statistics.median(processor[name])
        spread = f"{min(all_times):,.0f} to {max(all_times):,.0f}"
        # Two threads: the calling one only waits.
        own = f"{here:,.0f} | {here / base_here:.2f}" if "threads" not in name else "|"
        keeps = KEEPS[name.split()[0]]
        print(f"| {name} | {median:,.0f} | {spread} | {median / base:.2f} | {own} | {keeps} |")


if __name__ == "__main__":
    main()
