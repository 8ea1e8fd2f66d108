"""A Celery task that is done once for each key, whatever is sent, delivered or killed.

    CELERY_BROKER_URL=redis://localhost celery -A celery_once worker

A broker delivers a task again if its worker dies, if it is slower than the visibility timeout, and
whenever the sender sends it twice. The task claims its key: of all deliveries, in whatever worker
on this machine, one works. If it fails or is killed, the key is free again, and the next delivery
works. What must be set is `acks_late` and `reject_on_worker_lost`, or a killed task is not
delivered again; and a lease that is longer than the work, or `claim.extend` in it. Celery does not
repeat a task that has failed unless `autoretry_for` says so.
"""

from __future__ import annotations

import os
from pathlib import Path

import celery

import ebbtide

HOME = Path(os.environ.get("ORDERS_HOME", "orders"))

app = celery.Celery("celery_once", broker=os.environ.get("CELERY_BROKER_URL"))
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
)
# Here, where the module is imported: the processes of the pool, which are forked, open it again.
HOME.mkdir(parents=True, exist_ok=True)
seen = ebbtide.open(HOME / "charged", ebbtide.Fingerprint(window="24h", fpr=1e-9))


@app.task(bind=True, max_retries=None)
def charge(self: celery.Task, order: str) -> None:
    with seen.claim(order, lease="5s") as claim:
        if claim.in_progress:
            # Another delivery works, or was killed: asked again when the lease is over.
            raise self.retry(eta=claim.until)
        if claim:
            work(order)  # an exception releases the key


def work(order: str) -> None:
    """Stands for what costs money."""
    with open(HOME / "ledger", "a") as ledger:
        ledger.write(f"{order}\n")
