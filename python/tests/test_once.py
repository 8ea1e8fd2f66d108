"""Claims in coroutines, and functions that run once for each key."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from typing import Any

import pytest

import ebbtide

from .test_gil import SOON, held_up

LONG = "10m"


@pytest.mark.parametrize("durability", ["always", "never"])
def test_a_block_of_a_coroutine_confirms_or_releases(path: str, durability: Any) -> None:
    async def work(seen: ebbtide.Filter) -> None:
        async with seen.claim("a", lease=LONG) as claim:
            assert claim and "a" not in seen
            async with seen.claim("a", lease=LONG) as other:
                assert other.in_progress and not other
        assert "a" in seen
        async with seen.claim("a", lease=LONG) as claim:
            assert claim.seen
        with pytest.raises(ZeroDivisionError):
            async with seen.claim("b", lease=LONG):
                raise ZeroDivisionError
        async with seen.claim("b", lease=LONG) as claim:
            await asyncio.to_thread(claim.confirm)
        with pytest.raises(ebbtide.LeaseLost):
            async with seen.claim("c", lease=0.05):
                await asyncio.sleep(0.2)
        # A look at the object waits where `async with` would not hold up the loop.
        looked = seen.claim("d", lease=LONG)
        assert looked and looked.token is not None and not looked.seen
        with looked:
            pass
        assert "d" in seen and seen.claims() == []

    with ebbtide.open(path, ebbtide.Bloom(1000), durability=durability) as seen:
        asyncio.run(work(seen))


def test_a_claim_that_nobody_asked_claims_nothing(path: str) -> None:
    async def work(seen: ebbtide.Filter) -> None:
        seen.claim("a", lease=LONG)
        unasked = seen.claim("a", lease=LONG)
        assert "not asked" in repr(unasked) and seen.claims() == []
        del unasked
        assert seen.claim("a", lease=LONG)

    with ebbtide.open(path, ebbtide.Bloom(1000), durability="always") as seen:
        asyncio.run(work(seen))
        assert seen.claims() == []


def test_a_cancelled_task_releases_its_key(seen: ebbtide.Filter) -> None:
    async def hold(entered: asyncio.Event) -> None:
        async with seen.claim("a", lease=LONG):
            entered.set()
            await asyncio.sleep(600)

    async def work() -> None:
        entered = asyncio.Event()
        task = asyncio.ensure_future(hold(entered))
        await entered.wait()
        assert seen.claim("a", lease=LONG).in_progress
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert seen.claim("a", lease=LONG)

    asyncio.run(work())


@contextlib.contextmanager
def pool_of_one_thread() -> Iterator[tuple[Callable[[], object], Callable[[], object]]]:
    """Gives the running loop one thread. Yields what makes it busy, and what ends that."""
    free = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        asyncio.get_running_loop().set_default_executor(pool)
        try:
            yield lambda: pool.submit(free.wait, 60), free.set
        finally:
            free.set()


def test_work_that_is_done_is_confirmed_although_its_task_is_cancelled(path: str) -> None:
    async def work(seen: ebbtide.Filter, key: str, is_function: bool) -> None:
        worked = asyncio.Event()
        with pool_of_one_thread() as (occupy, free):

            async def function(key: str) -> None:
                occupy()
                worked.set()

            async def block(key: str) -> None:
                async with seen.claim(key, lease=LONG):
                    await function(key)

            once = ebbtide.once(seen, key=str, lease=LONG)(function)
            task = asyncio.ensure_future(once(key) if is_function else block(key))
            await worked.wait()
            for _ in range(2):
                task.cancel()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            assert not task.done() and key not in seen
            free()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert key in seen and seen.claims() == []

    with ebbtide.open(path, ebbtide.Bloom(1000, fpr=1e-9), durability="always") as seen:
        for key, is_function in (("a", False), ("b", True)):
            asyncio.run(work(seen, key, is_function))
            assert seen.claim(key, lease=LONG).seen


def test_a_confirmation_that_fails_after_a_cancellation_is_reported_by_the_loop(path: str) -> None:
    async def work(seen: ebbtide.Filter) -> None:
        worked, reported = asyncio.Event(), []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context.get("exception")))
        with pool_of_one_thread() as (occupy, free):

            async def block() -> None:
                async with seen.claim("a", lease=LONG):
                    occupy()
                    worked.set()

            task = asyncio.ensure_future(block())
            await worked.wait()
            task.cancel()
            await asyncio.sleep(0)
            assert seen.end_claim("a")
            free()
            with pytest.raises(asyncio.CancelledError):
                await task
        del task
        gc.collect()
        assert [type(error) for error in reported] == [ebbtide.LeaseLost] and "a" not in seen

    with ebbtide.open(path, ebbtide.Bloom(1000, fpr=1e-9), durability="always") as seen:
        asyncio.run(work(seen))


def test_a_filter_is_closed_although_its_task_is_cancelled(path: str) -> None:
    async def work(seen: ebbtide.Filter) -> None:
        with pool_of_one_thread() as (occupy, free):

            async def block() -> None:
                async with seen:
                    occupy()

            task = asyncio.ensure_future(block())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.sleep(0)
            free()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert seen.closed

    with ebbtide.open(path, ebbtide.Bloom(1000)) as seen:
        asyncio.run(work(seen))


def test_of_many_tasks_one_works_on_a_key(path: str) -> None:
    async def work(seen: ebbtide.Filter, number: int) -> int:
        done = 0
        for key in range(20):
            async with seen.claim(str(key), lease=LONG) as claim:
                if claim:
                    await asyncio.sleep(0.001)
                    done += 1
        return done

    async def all_of_them(seen: ebbtide.Filter) -> int:
        return sum(await asyncio.gather(*(work(seen, number) for number in range(10))))

    with ebbtide.open(path, ebbtide.Bloom(1000, fpr=1e-9), durability="always") as seen:
        assert asyncio.run(all_of_them(seen)) == 20


async def longest_hold(done: asyncio.Future[Any]) -> float:
    """Returns the longest time, in seconds, for which the loop did not run before this was done."""
    worst = 0.0
    while not done.done():
        before = time.monotonic()
        await asyncio.sleep(0.001)
        worst = max(worst, time.monotonic() - before)
    return worst


def test_the_loop_is_not_held_up_by_claims_that_wait_for_the_disk(path: str) -> None:
    turns = 0

    async def work(seen: ebbtide.Filter, task: int) -> None:
        for number in range(10):
            async with seen.claim(f"{task} {number}", lease=LONG) as claim:
                assert claim
                before = turns
            # Its end waited for the disk.
            assert turns > before

    async def all_of_them(seen: ebbtide.Filter) -> None:
        nonlocal turns
        done = asyncio.gather(*(work(seen, task) for task in range(20)))
        while not done.done():
            turns += 1
            await asyncio.sleep(0)
        await done

    with ebbtide.open(path, ebbtide.Bloom(1000, fpr=1e-9), durability="always") as seen:
        asyncio.run(all_of_them(seen))


def test_the_loop_is_not_held_up_by_a_stopped_process(path: str) -> None:
    async def hold(seen: ebbtide.Filter) -> None:
        async with seen.claim("a key", lease=LONG):
            raise AssertionError("the stripe is held")

    async def work(seen: ebbtide.Filter) -> float:
        waiting = asyncio.ensure_future(hold(seen))
        worst = await longest_hold(asyncio.ensure_future(asyncio.sleep(0.5)))
        assert not waiting.done()
        waiting.cancel()
        # The thread that waits ends once the filter is closed.
        seen.close()
        return worst

    with held_up(path) as seen:
        assert asyncio.run(work(ebbtide.open(path))) < SOON


def test_a_function_runs_once_for_each_key(seen: ebbtide.Filter) -> None:
    calls: list[int] = []

    @ebbtide.once(seen, key=lambda number: f"key {number}", lease="30s", default="before")
    def work(number: int) -> str:
        """Works."""
        calls.append(number)
        if len(calls) == 1:
            raise ZeroDivisionError
        return f"did {number}"

    assert (work.__name__, work.__doc__) == ("work", "Works.")
    with pytest.raises(ZeroDivisionError):
        work(5)
    assert (work(5), work(5), work(number=6), work(6)) == ("did 5", "before", "did 6", "before")
    assert calls == [5, 5, 6] and "key 5" in seen and seen.claims() == []

    @ebbtide.once(seen, key=str, lease=30)
    def nothing(number: int) -> int:
        return number

    assert (nothing(7), nothing(7)) == (7, None)


def test_a_coroutine_function_runs_once_for_each_key(seen: ebbtide.Filter) -> None:
    attempts = 0

    @ebbtide.once(seen, key=lambda order, amount: order, lease="30s")
    async def charge(order: str, amount: int) -> int:
        nonlocal attempts
        attempts += 1
        await asyncio.sleep(0.01)
        if attempts == 1:
            raise ZeroDivisionError
        return amount

    async def work() -> None:
        with pytest.raises(ZeroDivisionError):
            await charge("order 17", 5)
        first = asyncio.ensure_future(charge("order 17", amount=6))
        await asyncio.sleep(0)
        before = datetime.now(timezone.utc)
        with pytest.raises(ebbtide.InProgress, match="somebody else works on this key") as raised:
            await charge("order 17", 7)
        assert raised.value.until is not None and raised.value.until > before
        assert raised.value.name == "in-progress"
        assert await first == 6 and await charge("order 17", 8) is None

    asyncio.run(work())


def test_a_function_whose_key_is_worked_on_says_until_when(seen: ebbtide.Filter) -> None:
    work = ebbtide.once(seen, key=lambda: "a", lease=1)(lambda: "done")
    with seen.claim("a", lease="1h"):
        with pytest.raises(ebbtide.InProgress) as raised:
            work()
        assert raised.value.until is not None
        assert (raised.value.until - datetime.now(timezone.utc)).total_seconds() > 3000
    assert work() is None


def test_a_function_that_takes_longer_than_its_lease_says_so(seen: ebbtide.Filter) -> None:
    slow = ebbtide.once(seen, key=str, lease=0.05)(time.sleep)
    with pytest.raises(ebbtide.LeaseLost):
        slow(0.2)
    quick = ebbtide.once(seen, key=str, lease=30)(time.sleep)
    assert quick(0.001) is None and quick(0.001) is None


def test_methods_and_partial_coroutine_functions_run_once(seen: ebbtide.Filter) -> None:
    class Shop:
        @ebbtide.once(seen, key=lambda shop, order: f"{shop.name} {order}", lease=30)
        def charge(self, order: str) -> str:
            return f"{self.name} charged {order}"

        name = "shop"

    shop = Shop()
    assert shop.charge("1") == "shop charged 1" and shop.charge("1") is None

    async def add(a: int, b: int) -> int:
        return a + b

    class Adder:
        async def __call__(self, b: int) -> int:
            return 3 + b

    for function in (functools.partial(add, 3), Adder()):
        once = ebbtide.once(seen, key=lambda b: f"{function} {b}", lease=30)(function)
        assert asyncio.run(once(4)) == 7 and asyncio.run(once(4)) is None


def test_what_cannot_run_once_is_refused_at_its_definition(seen: ebbtide.Filter) -> None:
    def generator() -> Iterator[int]:
        yield 1

    async def asynchronous() -> AsyncIterator[int]:
        yield 1

    for function in (generator, asynchronous):
        with pytest.raises(TypeError, match="generator"):
            ebbtide.once(seen, key=str, lease=30)(function)
    with pytest.raises(TypeError, match="Filter"):
        ebbtide.once("seen", key=str, lease=30)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="lease"):
        ebbtide.once(seen, key=str, lease=[])  # type: ignore[call-overload]
    with pytest.raises(ValueError):
        ebbtide.once(seen, key=str, lease="soon")
    number: Any = 7
    work = ebbtide.once(seen, key=lambda: number, lease=30)(print)
    with pytest.raises(TypeError, match="a key is str"):
        work()


def test_work_that_a_plain_function_only_begins_is_refused_and_its_key_is_released(
    seen: ebbtide.Filter,
) -> None:
    done: list[int] = []

    async def work(order: int) -> None:
        done.append(order)

    def numbers(order: int) -> Iterator[int]:
        yield order

    async def later(order: int) -> AsyncIterator[int]:
        yield order

    def plain(function: Any) -> Any:
        def begins(order: int) -> Any:
            return function(order)

        return begins

    for function in (work, numbers, later):
        once: Any = ebbtide.once(seen, key=str, lease=30)(plain(function))
        with pytest.raises(TypeError, match="not done"):
            once(7)
        assert "7" not in seen and seen.claims() == [] and done == []
