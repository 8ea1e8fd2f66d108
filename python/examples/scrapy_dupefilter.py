"""A duplicate filter for Scrapy that remembers pages for a window of time, across crawls.

    # settings.py
    DUPEFILTER_CLASS = "scrapy_dupefilter.Window"
    EBBTIDE_PATH = "seen-pages"
    EBBTIDE_WINDOW = "7d"            # a page is fetched once in seven days
    EBBTIDE_FPR = 1e-6               # the share of new pages that are taken for seen ones

Scrapy's own filter remembers a page when its request is scheduled, in memory (or in JOBDIR, without
an end). This one remembers it once its response has arrived. What was only scheduled when a crawl
is killed, or has failed, is fetched by the next one, if a link leads to it from a page that the
next one fetches. Several crawls may run at once on one filter; a page that two of them schedule at
the same moment is fetched by both. Requests with `dont_filter`, as the first ones of a spider, are
always made.
"""

from __future__ import annotations

import scrapy
from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.dupefilters import BaseDupeFilter

import ebbtide


class Window(BaseDupeFilter):
    """What was fetched in the window, in a filter; what is being fetched, in memory."""

    def __init__(self, crawler: Crawler) -> None:
        settings = crawler.settings
        window = settings.get("EBBTIDE_WINDOW", "7d")
        self.spec = ebbtide.Fingerprint(window=window, fpr=settings.getfloat("EBBTIDE_FPR", 1e-6))
        self.path = settings.get("EBBTIDE_PATH", "seen-pages")
        self.fingerprint = crawler.request_fingerprinter.fingerprint
        self.stats = crawler.stats
        self.scheduled: set[bytes] = set()
        crawler.signals.connect(self.response_received, signals.response_received)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Window:
        return cls(crawler)

    def open(self) -> None:
        self.seen = ebbtide.open(self.path, self.spec)

    def close(self, reason: str) -> None:
        self.seen.close()

    def request_seen(self, request: scrapy.Request) -> bool:
        key = self.fingerprint(request)
        if key in self.scheduled or key in self.seen:
            return True
        self.scheduled.add(key)
        return False

    def response_received(self, response: scrapy.http.Response, request: scrapy.Request) -> None:
        # The page of an error is not what the spider wants: the next crawl asks again.
        if response.status < 400:
            key = self.fingerprint(request)
            self.seen.insert(key)
            self.scheduled.discard(key)

    def log(self, request: scrapy.Request, spider: scrapy.Spider) -> None:
        self.stats.inc_value("dupefilter/filtered")
