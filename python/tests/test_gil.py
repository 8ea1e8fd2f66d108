"""Other threads run on, and signals arrive, while a call takes its time."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import ebbtide

#: Generous: the machine may be busy. What is claimed is a tenth of it.
SOON = 2.0


@contextmanager
def counting() -> Iterator[list[int]]:
    """Runs a thread of Python code, and says how far it has come."""
    stop, count = threading.Event(), [0]

    def run() -> None:
        while not stop.is_set():
            count[0] += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield count
    finally:
        stop.set()
        thread.join()


def test_other_threads_run_while_keys_are_inserted_in_bulk(path: str) -> None:
    with ebbtide.open(path, ebbtide.Bloom(1_000_000)) as seen, counting() as count:
        array = ebbtide.raw(memoryview(bytes(8 * 50_000)).cast("Q"))
        before = count[0]
        seen.insert_all(array)
        assert count[0] > before


def test_other_threads_run_while_a_call_waits_for_the_disk(path: str) -> None:
    with ebbtide.open(path, ebbtide.Bloom(1000), durability="always") as seen:
        with counting() as count:
            before = count[0]
            for number in range(50):
                seen.insert(str(number))
            assert count[0] > before
        seen.sync()


CHILD = """
import ebbtide, sys
seen = ebbtide.open(sys.argv[1])
keys = [str(number) for number in range(20_000)]
print("open", flush=True)
while True:
    seen.insert_all(keys)
"""


@contextmanager
def held_up(path: str) -> Iterator[ebbtide.Filter]:
    """A filter whose one stripe is held by a stopped process."""
    with ebbtide.open(path, ebbtide.Bloom(100_000), stripes=1) as seen:
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, path], stdout=subprocess.PIPE, text=True
        )
        try:
            assert child.stdout is not None and child.stdout.readline() == "open\n"
            for _ in range(200):
                time.sleep(0.01)
                child.send_signal(signal.SIGSTOP)
                time.sleep(0.01)
                probe = threading.Thread(target=seen.insert, args=("probe",), daemon=True)
                probe.start()
                # Long, so that a busy machine is not taken for a stripe that is held.
                probe.join(2)
                if probe.is_alive():
                    break
                child.send_signal(signal.SIGCONT)
            else:
                pytest.skip("the process was never stopped while it held the stripe")
            yield seen
        finally:
            child.kill()
            child.communicate()
            probe.join(60)
            assert not probe.is_alive()


def test_a_stopped_process_holds_up_the_caller_of_its_stripe_and_no_other_thread(
    path: str,
) -> None:
    with held_up(path), counting() as count:
        # The thread that inserts waits; this one and another one do not.
        before = count[0]
        start = time.monotonic()
        time.sleep(0.2)
        assert time.monotonic() - start < SOON and count[0] > before


def test_an_interrupt_arrives_while_a_stopped_process_holds_the_stripe(path: str) -> None:
    with held_up(path) as seen:
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            seen.insert("a key")
        assert time.monotonic() - start < 0.3 + SOON
        timer.join()
        with pytest.raises(KeyboardInterrupt):
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            seen.insert_all(["a key", "another key"])
    # Nothing happened of the calls that were interrupted.
    with ebbtide.open(path) as seen:
        assert "a key" not in seen


def test_an_interrupt_ends_an_endless_bulk_call(seen: ebbtide.Filter) -> None:
    import itertools

    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        seen.insert_all(itertools.repeat("a"))
    assert time.monotonic() - start < 0.3 + SOON
    timer.join()


def test_an_event_loop_is_not_held_by_a_sync_in_a_thread(path: str) -> None:
    async def work() -> float:
        worst = 0.0
        with ebbtide.open(path, ebbtide.Bloom(100_000), durability="always") as seen:
            batch = [str(number) for number in range(1000)]
            done = asyncio.ensure_future(
                asyncio.gather(
                    *(asyncio.to_thread(seen.check_and_insert_all, batch) for _ in range(20))
                )
            )
            while not done.done():
                before = time.monotonic()
                await asyncio.sleep(0)
                worst = max(worst, time.monotonic() - before)
            await done
        return worst

    assert asyncio.run(work()) < SOON / 2


def test_two_threads_do_not_deadlock_with_close(tmp_path: Path) -> None:
    for number in range(20):
        seen = ebbtide.open(tmp_path / str(number), ebbtide.Bloom(1000))

        def work(seen: ebbtide.Filter = seen) -> None:
            try:
                while True:
                    seen.insert("a")
            except ebbtide.Closed:
                pass

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.01)
        seen.close()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
