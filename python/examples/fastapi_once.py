"""Webhooks in FastAPI: a delivery is worked on once, whatever is repeated, fails or is killed.

    uvicorn fastapi_once:app --workers 4

A sender repeats a delivery, with the same id, until it is answered with 2xx. The dependency
`Claimed` claims the id before the endpoint runs, and confirms it before the answer is sent:

    the work is done           200, by the endpoint
    it was done before         200, and the endpoint does not run
    another request does it    503, with the seconds to wait in `Retry-After`
    it has failed              500: the id is free, and the next delivery works

The workers share one filter. Each opens it in the lifespan of the application, which runs in the
worker: after the fork, or where the worker was spawned.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

from fastapi import Body, Depends, FastAPI, Header, HTTPException, Request

import ebbtide

HOME = Path(os.environ.get("ORDERS_HOME", "orders"))
#: Longer than the work. If a worker is killed, its delivery is free after that time.
LEASE = "5s"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, ebbtide.Filter]]:
    HOME.mkdir(parents=True, exist_ok=True)
    # Longer than any sender repeats a delivery. Of 10^9 new ones one is taken for a repetition.
    spec = ebbtide.Fingerprint(window="3d", fpr=1e-9)
    # In a thread, since it may recover; `async with` closes in a thread.
    async with await asyncio.to_thread(ebbtide.open, HOME / "delivered", spec) as seen:
        yield {"seen": seen}


async def claimed(
    request: Request, webhook_id: Annotated[str, Header(min_length=1)]
) -> AsyncIterator[ebbtide.Claim]:
    key = f"{request.url.path} {webhook_id}"
    async with request.state.seen.claim(key, lease=LEASE) as claim:
        if claim.in_progress:
            # Not 409: there are senders that do not repeat a delivery after an answer of 4xx.
            wait = (claim.until - datetime.now(timezone.utc)).total_seconds()
            raise HTTPException(503, "in progress", {"Retry-After": str(max(1, math.ceil(wait)))})
        if claim.seen:
            # No error: an exception is how a dependency answers in place of the endpoint.
            raise HTTPException(200, "done before")
        yield claim  # an exception of the endpoint is raised here, and releases the id


# Of this scope, which ends before the answer is sent: the default one ends after it.
Claimed = Annotated[ebbtide.Claim, Depends(claimed, scope="function")]

app = FastAPI(lifespan=lifespan)


@app.post("/orders")
async def charge(order: Annotated[str, Body(embed=True)], claim: Claimed) -> dict[str, str]:
    await work(order)
    return {"detail": "done"}


async def work(order: str) -> None:
    """Stands for what costs money."""
    with open(HOME / "ledger", "a") as ledger:
        ledger.write(f"{order}\n")
