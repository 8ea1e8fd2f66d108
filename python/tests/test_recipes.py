"""The recipes for other packages, with the real packages: `pip install 'ebbtide[recipes]'`."""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import ebbtide

EXAMPLES = Path(__file__).parents[1] / "examples"


def needs(package: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"needs {package}")


def environment(home: Path, **settings: str) -> dict[str, str]:
    path = os.pathsep.join([str(EXAMPLES), str(home)])
    return {**os.environ, "PYTHONPATH": path, **settings}


SPIDER = """
import sys
import scrapy
from scrapy.crawler import CrawlerProcess

class Links(scrapy.Spider):
    name = "links"
    start_urls = [sys.argv[1]]

    def parse(self, response, **_):
        yield from response.follow_all(css="a")

process = CrawlerProcess({
    "DUPEFILTER_CLASS": "scrapy_dupefilter.Window",
    "EBBTIDE_PATH": sys.argv[2],
    "LOG_LEVEL": "ERROR",
    "TELNETCONSOLE_ENABLED": False,
    "DOWNLOAD_DELAY": 0,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 4,
})
process.crawl(Links)
process.start()
"""


@contextmanager
def site(pages: int, fetched: Counter[int], broken: int, pause: float) -> Iterator[str]:
    """A site with a list of its pages, which also link to others; it counts what is fetched."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self.path[1:].isdigit():
                return self.send_error(404)
            number = int(self.path[1:])
            fetched[number] += 1
            time.sleep(pause)
            others = range(pages) if number == 0 else [(number * 3 + 1) % pages, number]
            links = (f"<a href='/{other}'>a page</a>" for other in others)
            self.send_response(404 if number == broken else 200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write("".join(links).encode())

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/0"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@needs("scrapy")
def test_scrapy_fetches_a_page_once_in_the_window_and_broken_pages_again(tmp_path: Path) -> None:
    program, fetched = tmp_path / "spider.py", Counter[int]()
    program.write_text(SPIDER)
    with site(60, fetched, broken=7, pause=0) as url:
        for crawl in (1, 2):
            command = [sys.executable, program, url, tmp_path / "seen"]
            subprocess.run(command, env=environment(tmp_path), check=True, timeout=300)
            if crawl == 1:
                assert set(fetched) == set(range(60)) and set(fetched.values()) == {1}
    # The first request of a spider is not filtered; page 7 was an error.
    assert fetched.pop(0) == 2 and fetched.pop(7) == 2
    assert set(fetched.values()) == {1}


@needs("scrapy")
def test_scrapy_fetches_in_the_next_crawl_what_a_killed_one_had_only_scheduled(
    tmp_path: Path,
) -> None:
    program, fetched = tmp_path / "spider.py", Counter[int]()
    program.write_text(SPIDER)
    with site(120, fetched, broken=-1, pause=0.02) as url:
        command = [sys.executable, str(program), url, str(tmp_path / "seen")]
        first = subprocess.Popen(command, env=environment(tmp_path))
        until = time.monotonic() + 120
        while len(fetched) < 40 and time.monotonic() < until:
            time.sleep(0.01)
        first.kill()
        first.wait()
        known = len(fetched)
        assert 40 <= known < 120
        subprocess.run(command, env=environment(tmp_path), check=True, timeout=300)
    assert fetched.pop(0) == 2 and set(fetched) == set(range(1, 120))
    twice = [page for page, count in fetched.items() if count > 1]
    # Those whose responses were on their way when it was killed: four requests at a time.
    assert len(twice) <= 16 and max(fetched.values()) <= 2


ORDERS = """
import os, signal
import celery_once
from celery_once import HOME, app

folders = {"data_folder_in": "queue", "data_folder_out": "queue", "control_folder": "control"}
app.conf.broker_transport_options = {name: str(HOME / at) for name, at in folders.items()}
works = celery_once.work

def work(order):
    if order == "order 3" and not (HOME / "killed").exists():
        (HOME / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if order == "order 5" and not (HOME / "failed").exists():
        (HOME / "failed").touch()
        raise OSError("the bank does not answer")
    works(order)

celery_once.work = work
"""

SEND = """
from orders import celery_once
for _ in range(3):
    for number in range(20):
        celery_once.charge.delay(f"order {number}")
"""


@needs("celery")
def test_celery_charges_each_order_once_though_it_is_sent_thrice_and_workers_are_killed(
    tmp_path: Path,
) -> None:
    (tmp_path / "queue").mkdir()
    (tmp_path / "orders.py").write_text(ORDERS)
    settings = {"ORDERS_HOME": str(tmp_path), "CELERY_BROKER_URL": "filesystem://"}
    given = environment(tmp_path, **settings)
    log = (tmp_path / "log").open("w")
    worker = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "orders", "worker", "-c", "2", "-l", "INFO"],
        env=given,
        cwd=tmp_path,
        stdout=log,
        stderr=subprocess.STDOUT,
    )

    def charged() -> Counter[str]:
        ledger = tmp_path / "ledger"
        return Counter(ledger.read_text().splitlines() if ledger.exists() else [])

    try:
        subprocess.run([sys.executable, "-c", SEND], env=given, cwd=tmp_path, check=True)
        until = time.monotonic() + 300
        # All are charged, and no delivery is on its way.
        while time.monotonic() < until:
            if len(charged()) == 20 and not any((tmp_path / "queue").iterdir()):
                break
            time.sleep(0.2)
    finally:
        worker.terminate()
        worker.wait(60)
        log.close()
    assert charged() == {f"order {number}": 1 for number in range(20)}, tmp_path / "log"
    assert (tmp_path / "killed").exists() and (tmp_path / "failed").exists()


DELIVERIES = """
import asyncio, os, signal, time
import fastapi_once
from fastapi_once import HOME, app

fastapi_once.LEASE = os.environ["LEASE"]
works = fastapi_once.work

async def work(order):
    begun = HOME / f"{order} begun"
    if not begun.exists():
        begun.touch()
        if order == "fails":
            raise OSError("the bank does not answer")
        if order == "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if order == "takes longer than the lease":
            await asyncio.sleep(3)
        while order == "waits" and not (HOME / "continue").exists():
            await asyncio.sleep(0.01)
        while order == "blocks" and not (HOME / "continue").exists():
            time.sleep(0.01)
    await works(order)

fastapi_once.work = work
"""

Answer = tuple[int, str, int]


@contextmanager
def receiver(home: Path, lease: str) -> Iterator[Callable[..., Answer]]:
    """Two workers of uvicorn; a function that delivers an order to one of them, and returns the
    status, what the answer says, and the seconds to wait."""
    (home / "deliveries.py").write_text(DELIVERIES)
    command = [sys.executable, "-m", "uvicorn", "deliveries:app", "--port", "0", "--workers", "2"]
    log = home / "log"
    with log.open("w") as output:
        server = subprocess.Popen(
            command,
            env=environment(home, ORDERS_HOME=str(home), LEASE=lease),
            cwd=home,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    until = time.monotonic() + 120
    while log.read_text().count("startup complete") < 2:
        assert server.poll() is None and time.monotonic() < until, log.read_text()
        time.sleep(0.05)
    port = int(log.read_text().split("running on http://127.0.0.1:")[1].split()[0])

    def deliver(order: str, timeout: float = 120) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
        headers = {"Webhook-Id": f"message of {order}", "Content-Type": "application/json"}
        try:
            connection.request("POST", "/orders", json.dumps({"order": order}), headers)
            answer = connection.getresponse()
            text = answer.read().decode()
            detail = json.loads(text)["detail"] if answer.status != 500 else text
            return answer.status, detail, int(answer.getheader("Retry-After", "0"))
        finally:
            connection.close()

    try:
        yield deliver
    finally:
        server.terminate()
        code = server.wait(60)
    assert code == 0, log.read_text()
    with ebbtide.open(home / "delivered") as seen:
        assert seen.claims() == [] and "/orders message of fails" in seen


DONE, BEFORE = (200, "done", 0), (200, "done before", 0)


def until_done(deliver: Callable[..., Answer], order: str) -> Answer:
    """What a sender does: it repeats a delivery until it is done."""
    until = time.monotonic() + 120
    while (answer := deliver(order))[0] != 200 and time.monotonic() < until:
        time.sleep(0.02)
    return answer


def works(home: Path) -> Counter[str]:
    return Counter((home / "ledger").read_text().splitlines())


@needs("fastapi")
@needs("uvicorn")
def test_fastapi_works_once_on_a_delivery_in_whatever_worker_and_again_if_the_work_has_failed(
    tmp_path: Path,
) -> None:
    with receiver(tmp_path, lease="10m") as deliver:
        assert deliver("fails")[0] == 500
        assert [deliver("fails") for _ in range(3)] == [DONE, BEFORE, BEFORE]

        # A sender that hangs up does not end the work. A worker that is blocked answers nobody, so
        # it is the other one that knows of its claim.
        for order in ("waits", "blocks"):
            with pytest.raises(socket.timeout):
                deliver(order, timeout=1)
            until = time.monotonic() + 60
            while not (tmp_path / f"{order} begun").exists() and time.monotonic() < until:
                time.sleep(0.01)
            status, detail, wait = deliver(order)
            assert (status, detail) == (503, "in progress") and 0 < wait <= 600
        (tmp_path / "continue").touch()
        assert [until_done(deliver, order) for order in ("waits", "blocks")] == [BEFORE, BEFORE]

        orders = [f"order {number % 40}" for number in range(120)]
        with ThreadPoolExecutor(12) as senders:
            answers = Counter(senders.map(lambda order: until_done(deliver, order), orders))
        assert answers == {DONE: 40, BEFORE: 80}
    assert works(tmp_path) == dict.fromkeys({"fails", "waits", "blocks", *orders}, 1)


@needs("fastapi")
@needs("uvicorn")
def test_fastapi_works_again_after_the_lease_of_a_worker_that_was_killed_or_was_too_slow(
    tmp_path: Path,
) -> None:
    with receiver(tmp_path, lease="2s") as deliver:
        assert (deliver("fails")[0], until_done(deliver, "fails")) == (500, DONE)
        with pytest.raises(ConnectionError):
            deliver("is killed")
        assert until_done(deliver, "is killed") == DONE
        # The answer is an error, since another delivery may have been worked on meanwhile.
        assert deliver("takes longer than the lease")[0] == 500
        assert until_done(deliver, "takes longer than the lease") == DONE
        for order in ("fails", "is killed", "takes longer than the lease"):
            assert deliver(order) == BEFORE
    expected = {"fails": 1, "is killed": 1, "takes longer than the lease": 2}
    assert works(tmp_path) == expected
