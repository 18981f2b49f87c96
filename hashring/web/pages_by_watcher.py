"""Bring the pages of all rings and groups, and the list of them, up to date after each reading."""

from __future__ import annotations

import threading
from collections.abc import Callable

from hashring.web.group_page import GroupPage
from hashring.web.group_watcher import GroupWatcher
from hashring.web.index_page import IndexPage
from hashring.web.page_templates import Templates
from hashring.web.ring_page import RingPage
from hashring.web.ring_watcher import RingWatcher
from hashring.web.service import Service


class LivePages:
    """Every page that stays up to date; made when first asked for.

    Attributes:
        index: the list of rings and groups.
    """

    def __init__(self, service: Service, templates: Templates) -> None:
        self.index = IndexPage(templates, service)
        self._templates = templates
        self._lock = threading.Lock()
        self._pages: dict[RingWatcher | GroupWatcher, RingPage | GroupPage] = {}

    def ring(self, watcher: RingWatcher) -> RingPage:
        """The page of a ring."""
        page = self._page(watcher, lambda: RingPage(self._templates, watcher))
        assert isinstance(page, RingPage)
        return page

    def group(self, watcher: GroupWatcher) -> GroupPage:
        """The page of a partition group."""
        page = self._page(watcher, lambda: GroupPage(self._templates, watcher))
        assert isinstance(page, GroupPage)
        return page

    def _page(
        self, watcher: RingWatcher | GroupWatcher, make: Callable[[], RingPage | GroupPage]
    ) -> RingPage | GroupPage:
        with self._lock:
            page = self._pages.get(watcher)
            if page is None:
                page = make()
                if watcher.stopping:
                    # Forgotten between the request's arrival and now: shown once more, not kept.
                    page.feed.close()
                else:
                    self._pages[watcher] = page
                    feed = page.feed
                    watcher.followed = lambda: feed.readers > 0
        return page

    def looked(self, watcher: RingWatcher | GroupWatcher) -> None:
        """Bring the page of what was read up to date."""
        page = self._pages.get(watcher)
        if page is not None:
            page.looked()

    def pulsed(self) -> None:
        """Bring the list up to date."""
        self.index.looked()

    def forgotten(self, watcher: RingWatcher | GroupWatcher) -> None:
        """End the page of what is not watched any more."""
        with self._lock:
            page = self._pages.pop(watcher, None)
        if page is not None:
            page.feed.close()

    def stopped(self) -> None:
        """End all streams."""
        with self._lock:
            pages = list(self._pages.values())
        for page in (*pages, self.index):
            page.feed.close()
