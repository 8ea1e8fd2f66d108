"""Claims: one holder of a key at a time, and a key is in the window once its work is confirmed."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

import ebbtide

from .conftest import EFFORT
from .test_fork import in_child
from .test_gil import LIMIT, SOON, counting, held_up, runs_on

#: A lease that ends within a test, and one that does not.
SHORT, LONG = 0.2, "10m"


def is_free(seen: ebbtide.Filter, key: str) -> bool:
    """Returns whether a key can be claimed; it is released again."""
    return bool(seen.claim(key, lease=LONG))


def test_threads_that_ask_at_once_for_one_object_all_have_its_claim(path: str) -> None:
    async def unasked(key: str) -> ebbtide.Claim:
        # A sync would hold up the loop.
        return seen.claim(key, lease=LONG)

    with ebbtide.open(path, ebbtide.Bloom(1000), durability="always") as seen:
        for number in range(20):
            claim = asyncio.run(unasked(f"key {number}"))
            assert not claim._is_asked
            start = threading.Barrier(4)

            def look(claim: ebbtide.Claim = claim, start: threading.Barrier = start) -> None:
                start.wait(LIMIT)
                bool(claim)

            threads = [threading.Thread(target=look) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert claim.is_mine and not claim.in_progress
            assert seen.stat().claims == number + 1
            claim.keep()


def test_a_key_is_in_the_window_once_its_block_has_ended_and_not_before(
    seen: ebbtide.Filter,
) -> None:
    with seen.claim("a", lease=LONG) as claim:
        assert claim and claim.is_mine and not claim.seen and not claim.in_progress
        assert "a" not in seen and seen.stat().claims == 1
        other = seen.claim("a", lease=LONG)
        assert other.in_progress and not other and not other.seen and other.token is None
        assert str(claim.token) in repr(claim) and "in progress until" in repr(other)
    assert "a" in seen and seen.stat().claims == 0 and not claim and "ended" in repr(claim)
    with seen.claim("a", lease=LONG) as again:
        assert again.seen and not again and again.until is None and again.token is None
    assert seen.stat().inserts == 1 and "seen" in repr(again)


def test_an_exception_releases_the_key_and_is_passed_on(seen: ebbtide.Filter) -> None:
    for error in (ZeroDivisionError, KeyboardInterrupt, SystemExit):
        with pytest.raises(error), seen.claim("a", lease=LONG) as claim:
            raise error
        assert "a" not in seen and not claim and seen.claims() == []
    assert is_free(seen, "a")


def test_an_exception_is_passed_on_though_the_release_fails(path: str) -> None:
    seen = ebbtide.open(path, ebbtide.Bloom(1000))
    with pytest.raises(ZeroDivisionError), seen.claim("a", lease=SHORT):
        seen.close()
        raise ZeroDivisionError
    with pytest.raises(ebbtide.Closed), ebbtide.open(path) as again:
        time.sleep(SHORT)
        with again.claim("a", lease=LONG) as claim:
            assert claim, "closing leaves the claim to the end of its lease"
            again.close()


def test_after_an_end_that_was_asked_for_the_block_does_nothing_more(seen: ebbtide.Filter) -> None:
    with seen.claim("a", lease=LONG) as claim:
        claim.confirm()
        assert "a" in seen and not claim
    with seen.claim("b", lease=LONG) as claim:
        assert claim.release() and not claim.release() and not claim
    assert "b" not in seen and is_free(seen, "b")
    with pytest.raises(ZeroDivisionError), seen.claim("c", lease=LONG) as claim:
        claim.confirm()
        raise ZeroDivisionError
    assert "c" in seen
    with seen.claim("d", lease=LONG) as claim:
        token = claim.keep()
    assert "d" not in seen and seen.claim("d", lease=LONG).in_progress
    with seen.resume_claim("d", token) as claim:
        assert claim and claim.token == token and claim.until is None
    assert "d" in seen


def test_an_object_that_is_dropped_releases_the_key(seen: ebbtide.Filter) -> None:
    claim = seen.claim("a", lease=LONG)
    assert claim and not is_free(seen, "a")
    del claim
    gc.collect()
    assert is_free(seen, "a") and seen.claims() == []
    # Others do not.
    claim = seen.claim("a", lease=LONG)
    seen.claim("a", lease=LONG)
    assert len(seen.claims()) == 1
    claim.confirm()


def test_a_claim_keeps_its_filter_open(path: str) -> None:
    claim = ebbtide.open(path, ebbtide.Bloom(1000)).claim("a", lease=LONG)
    gc.collect()
    claim.confirm()
    with pytest.warns(ResourceWarning, match="unclosed"):
        del claim
        gc.collect()
    with ebbtide.open(path) as seen:
        assert "a" in seen


def test_a_batch_keeps_its_filter_open(path: str) -> None:
    batch = ebbtide.open(path, ebbtide.Bloom(1000)).batch()
    gc.collect()
    batch.insert("a")
    batch.commit()
    with pytest.warns(ResourceWarning, match="unclosed"):
        del batch
        gc.collect()
    with ebbtide.open(path) as seen:
        assert "a" in seen


def test_a_lease_that_is_over_is_lost_at_the_end_of_the_block(seen: ebbtide.Filter) -> None:
    with pytest.raises(ebbtide.LeaseLost) as raised, seen.claim("a", lease=SHORT) as claim:
        token = claim.token
        time.sleep(2 * SHORT)
    error = raised.value
    assert (error.name, error.code, error.token) == ("lease-lost", 22, token)
    assert error.path == seen.path and "a" not in seen
    assert vars(pickle.loads(pickle.dumps(error))) == vars(error)
    late = seen.claim("a", lease=SHORT)
    time.sleep(2 * SHORT)
    with seen.claim("a", lease=LONG) as claim:
        assert claim and claim.token is not None and token is not None and claim.token > token
        with pytest.raises(ebbtide.LeaseLost):
            late.confirm()
        with pytest.raises(ebbtide.LeaseLost):
            late.extend(LONG)
        assert not late.release()
        del late
        assert seen.claim("a", lease=LONG).in_progress
    assert "a" in seen


@pytest.mark.parametrize("lease", [10.0, timedelta(seconds=10), "10s"], ids=repr)
def test_a_lease_is_as_long_as_was_said_and_may_be_renewed(
    seen: ebbtide.Filter, lease: ebbtide.Duration
) -> None:
    before = datetime.now(timezone.utc)
    with seen.claim("a", lease=lease) as claim:
        assert claim.until is not None
        after = claim.until - before - timedelta(seconds=10)
        assert timedelta(0) <= after < timedelta(minutes=1)
        renewed = claim.extend("1h")
        assert renewed is not None and renewed == claim.until
        assert timedelta(minutes=59) < renewed - before < timedelta(minutes=61)
        until = seen.claim("a", lease=LONG).until
        assert until is not None and abs(until - renewed) < timedelta(seconds=10)
    assert "a" in seen


@pytest.mark.parametrize("lease", [SHORT, timedelta(seconds=SHORT), "200ms"], ids=repr)
def test_a_lease_that_was_renewed_does_not_end_when_it_would_have(
    seen: ebbtide.Filter, lease: ebbtide.Duration
) -> None:
    end = time.monotonic() + LIMIT
    while True:
        claim = seen.claim("a", lease=lease)
        try:
            claim.extend("1h")
            break
        except ebbtide.LeaseLost:
            # On a busy machine a short lease may end before it is renewed.
            assert time.monotonic() < end
    with claim:
        time.sleep(1.5 * SHORT)
    assert "a" in seen


def test_claims_are_listed_and_can_be_ended(seen: ebbtide.Filter) -> None:
    claims = [seen.claim(key, lease="1h") for key in ("a", "b")]
    listed = seen.claims()
    assert [open.token for open in listed] == [claim.token for claim in claims]
    assert all(open.remaining > timedelta(minutes=59) and open.hash for open in listed)
    stat = seen.stat()
    assert stat.claims == 2 and stat.oldest_claim is not None and stat.oldest_claim >= listed[0].age
    with ebbtide.Reader(seen.path) as reader:
        assert reader.stat().claims == 2
    assert seen.end_claim("a") and not seen.end_claim("a")
    with pytest.raises(ebbtide.LeaseLost):
        claims[0].confirm()
    claims[1].confirm()
    assert seen.claims() == [] and seen.stat().oldest_claim is None


def test_a_batch_confirms_claims_with_its_position_or_does_nothing(seen: ebbtide.Filter) -> None:
    with seen.batch() as batch, seen.claim("a", lease=LONG) as claim:
        batch.confirm(claim)
        batch.set_position(3, 9)
        assert len(batch) == 1 and not claim and "a" not in seen
        assert seen.claim("a", lease=LONG).in_progress
    assert "a" in seen and seen.position(3) == 9
    with pytest.raises(ZeroDivisionError), seen.batch() as batch:
        with seen.claim("b", lease=LONG) as claim:
            batch.confirm(claim)
        raise ZeroDivisionError
    assert "b" not in seen and is_free(seen, "b")
    batch.confirm(seen.claim("b", lease=LONG))
    batch.set_position(3, 10)
    assert seen.end_claim("b")
    with pytest.raises(ebbtide.LeaseLost):
        batch.commit()
    assert "b" not in seen and seen.position(3) == 9
    batch.clear()
    batch.confirm(seen.claim("b", lease=LONG))
    del batch
    assert is_free(seen, "b")


def test_a_batch_takes_claims_of_its_filter_only(seen: ebbtide.Filter, path: str) -> None:
    batch = seen.batch()
    with ebbtide.open(path + "-other", ebbtide.Bloom(1000)) as other:
        with pytest.raises(ebbtide.BadParameter, match="of the batch's filter"):
            batch.confirm(other.claim("a", lease=LONG))
    with seen.claim("a", lease=LONG):
        for claim in (seen.claim("a", lease=LONG), "a", None):
            with pytest.raises((ValueError, TypeError)):
                batch.confirm(claim)  # type: ignore[arg-type]
    assert not batch


def test_times_are_those_of_the_question_and_of_the_insert(path: str) -> None:
    start = 1_700_000_000.0
    with ebbtide.open(path, ebbtide.TimeLimited("1h", fpr=1e-6)) as seen:
        with seen.claim("a", lease=LONG, time=start, durability="always") as claim:
            assert claim
        with seen.batch() as batch, seen.claim("b", lease=LONG, time=start) as claim:
            batch.confirm(claim)
        token = seen.claim("c", lease=LONG, time=start).keep()
        seen.resume_claim("c", token, time=start, durability=1).confirm()
        for key in "abc":
            assert seen.claim(key, lease=LONG, time=start + 3500).seen
            assert not seen.claim(key, lease=LONG, time=start + 4000).seen
            assert seen.age(key, time=start + 3500) is not None


def test_what_is_no_claim_is_refused(seen: ebbtide.Filter) -> None:
    wrong: list[tuple[type[Exception], Callable[[], object]]] = [
        (TypeError, lambda: seen.claim("a")),  # type: ignore[call-arg]
        (TypeError, lambda: seen.claim("a", "30s")),  # type: ignore[call-arg]
        (TypeError, lambda: seen.claim(7, lease=1)),  # type: ignore[arg-type]
        (TypeError, lambda: seen.claim("a", lease=None)),  # type: ignore[arg-type]
        (TypeError, lambda: seen.claim("a", lease=True)),
        (ebbtide.BadParameter, lambda: seen.claim("a", lease=0)),
        (ebbtide.BadParameter, lambda: seen.claim("a", lease=-1)),
        (ebbtide.BadParameter, lambda: seen.claim("a", lease="98d")),
        (ebbtide.BadParameter, lambda: seen.claim("a", lease="soon")),
        (ValueError, lambda: seen.claim("a", lease=1, durability="x")),
        (TypeError, lambda: seen.resume_claim("a", "1")),  # type: ignore[arg-type]
        (TypeError, lambda: seen.resume_claim("a", -1)),
        (TypeError, lambda: ebbtide.Claim()),
    ]
    for number, (kind, call) in enumerate(wrong):
        with pytest.raises(kind):
            call()
            pytest.fail(f"number {number} was accepted")
    with pytest.raises(ebbtide.LeaseLost):
        seen.resume_claim("a", 1).confirm()
    seen.insert("seen")
    mine = seen.claim("a", lease=LONG)
    for key, why in (("a", "somebody else works on it"), ("seen", "it was seen")):
        claim = seen.claim(key, lease=LONG)
        for refused in (claim.confirm, claim.keep, lambda c=claim: c.extend(1)):
            with pytest.raises(ValueError, match=why):
                refused()
        assert not claim.release()
    with pytest.raises(ebbtide.BadParameter):
        mine.extend(0)
    assert mine and seen.stat().claims == 1
    mine.confirm()


def test_a_filter_that_is_full_of_claims_says_so(seen: ebbtide.Filter) -> None:
    for number in range(1 << 16):
        seen.claim(str(number), lease="1h").keep()
    with pytest.raises(ebbtide.ClaimsFull) as raised:
        seen.claim("another", lease="1h")
    assert (raised.value.name, raised.value.code, raised.value.most) == ("claims-full", 23, 1 << 16)
    assert seen.end_claim("7") and is_free(seen, "another")


def test_of_many_threads_one_works_on_a_key_and_failures_are_tried_again(path: str) -> None:
    keys = [f"key {number}" for number in range(200)]
    done: list[str] = []
    working: set[str] = set()
    lock = threading.Lock()

    def work(thread: int) -> None:
        for attempt in range(3):
            for number, key in enumerate(keys):
                try:
                    with seen.claim(key, lease=LONG) as claim:
                        if not claim:
                            continue
                        with lock:
                            assert key not in working
                            working.add(key)
                        time.sleep(0)
                        with lock:
                            working.remove(key)
                        if number % 3 == 0 and attempt == 0:
                            raise ZeroDivisionError
                        with lock:
                            done.append(key)
                except ZeroDivisionError:
                    pass

    with ebbtide.open(path, ebbtide.Bloom(1000, fpr=1e-9)) as seen:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(done) == sorted(keys) and seen.claims() == []


def test_another_thread_may_renew_the_lease_during_the_work(seen: ebbtide.Filter) -> None:
    stop = threading.Event()
    # Longer than a thread waits for its turn on a busy machine.
    with seen.claim("a", lease="5s") as claim:

        def renew() -> None:
            while not stop.wait(0.05):
                claim.extend("5s")

        renewing = threading.Thread(target=renew)
        renewing.start()
        time.sleep(5.5)
        stop.set()
        renewing.join()
    assert "a" in seen


def test_a_claim_that_waits_for_a_stopped_process_lets_others_run_and_can_be_interrupted(
    path: str,
) -> None:
    # Claims in the end wait for the same stripes as inserts do.
    with held_up(path) as seen, counting() as count:
        others: list[bool] = []
        sent = [0.0]

        def interrupt() -> None:
            others.append(runs_on(count))
            sent[0] = time.monotonic()
            os.kill(os.getpid(), signal.SIGINT)

        timer = threading.Timer(0.3, interrupt)
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            with seen.claim("a key", lease=LONG):
                raise AssertionError("the stripe is held")
        assert time.monotonic() - sent[0] < SOON and others == [True]
        timer.join()


HOLDER = """
import ebbtide, sys, time
seen = ebbtide.open(sys.argv[1])
with seen.claim("order 17", lease=float(sys.argv[2])) as claim:
    print("mine" if claim else "not mine", flush=True)
    time.sleep(600)
"""


def test_the_key_of_a_killed_process_is_free_after_its_lease(path: str) -> None:
    with ebbtide.open(path, ebbtide.Bloom(1000)) as seen:
        for _ in range(max(int(3 * EFFORT), 1)):
            lease = 3.0
            holder = subprocess.Popen(
                [sys.executable, "-c", HOLDER, path, str(lease)], stdout=subprocess.PIPE, text=True
            )
            began = time.monotonic()
            assert holder.stdout is not None and holder.stdout.readline() == "mine\n"
            claimed = time.monotonic()
            holder.kill()
            holder.communicate()
            while not is_free(seen, "order 17"):
                assert time.monotonic() - claimed < lease + 60
                time.sleep(0.01)
            assert time.monotonic() - began >= lease
            assert seen.claims() == [] and "order 17" not in seen


def test_an_interrupted_process_releases_its_key(path: str) -> None:
    with ebbtide.open(path, ebbtide.Bloom(1000)) as seen:
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, path, "3600"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert holder.stdout is not None and holder.stdout.readline() == "mine\n"
        holder.send_signal(signal.SIGINT)
        holder.communicate(timeout=60)
        assert is_free(seen, "order 17")


def test_a_forked_child_neither_ends_nor_releases_the_claim_of_its_parent(
    seen: ebbtide.Filter,
) -> None:
    claim, kept = seen.claim("a", lease=LONG), seen.claim("b", lease=LONG).keep()

    def work() -> bool:
        nonlocal claim
        for refused in (claim.confirm, claim.release, lambda: claim.extend(LONG)):
            with pytest.raises(ebbtide.Forked):
                refused()
        with pytest.raises(ebbtide.Forked), claim:
            pass
        with pytest.raises(ZeroDivisionError), claim:
            raise ZeroDivisionError
        claim = seen.claim("a", lease=LONG)
        gc.collect()
        in_progress = claim.in_progress
        # One whose token it knows, and one of its own.
        with seen.resume_claim("b", kept), seen.claim("c", lease=LONG) as own:
            return in_progress and bool(own)

    in_child(work)
    assert [open.token for open in seen.claims()] == [claim.token]
    assert "b" in seen and "c" in seen
    claim.confirm()
    assert "a" in seen


def test_claims_survive_closing_and_are_shared_by_processes(path: str) -> None:
    seen = ebbtide.open(path, ebbtide.Bloom(1000))
    token = seen.claim("a", lease="1h").keep()
    seen.close()
    code = (
        "import ebbtide, sys\n"
        "with ebbtide.open(sys.argv[1]) as seen:\n"
        "    print(seen.claim('a', lease=1).in_progress, seen.claims()[0].token)\n"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=True
    )
    assert printed.stdout.split() == ["True", str(token)]
    with ebbtide.open(path) as seen:
        seen.resume_claim("a", token).confirm()
        assert "a" in seen
