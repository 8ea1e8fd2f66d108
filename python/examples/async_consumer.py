"""An asyncio consumer that drops the duplicates of a stream.

    python async_consumer.py --demo

A single check takes about a microsecond: call it in the event loop. Where it must be on the disk
before the message is acknowledged, collect a batch, and check it in a thread: the loop runs on
while the thread waits for one sync, and the batch shares it.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator

import ebbtide

MESSAGES = 5_000
BATCH = 256


async def stream() -> AsyncIterator[str]:
    """Messages of which about half repeat an earlier one, as a broker may deliver them."""
    chance = random.Random(7)
    for number in range(MESSAGES):
        yield f"message {chance.randrange(number + 1)}"
        if number % 100 == 0:
            await asyncio.sleep(0)


async def batches(messages: AsyncIterator[str]) -> AsyncIterator[list[str]]:
    batch: list[str] = []
    async for message in messages:
        batch.append(message)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


async def consume(seen: ebbtide.Filter) -> list[str]:
    """Returns the messages that were handled: each once."""
    handled: list[str] = []
    async for batch in batches(stream()):
        answers = await asyncio.to_thread(seen.check_and_insert_all, batch)
        handled += [message for message, answer in zip(batch, answers) if answer]
        # Here the batch would be acknowledged to the broker.
    return handled


async def ticks() -> float:
    """Returns the longest time, in seconds, for which the loop did not run."""
    worst, before = 0.0, time.monotonic()
    while True:
        try:
            await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            return worst
        worst, before = max(worst, time.monotonic() - before), time.monotonic()


async def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        spec = ebbtide.Fingerprint(last=1_000_000, fpr=1e-6)
        with ebbtide.open(f"{home}/seen", spec, durability="always") as seen:
            watching = asyncio.ensure_future(ticks())
            handled = await consume(seen)
            watching.cancel()
            worst = await watching
    assert len(set(handled)) == len(handled) and len(handled) < MESSAGES
    print(
        f"async_consumer: handled {len(handled)} of {MESSAGES} messages; the loop was held for "
        f"{worst * 1000:.0f} ms at most"
    )


if __name__ == "__main__":
    asyncio.run(main())
