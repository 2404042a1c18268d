"""Logs events in the background. What `log` has accepted is stored exactly once.

    from tidemark_client import EventLogger

    logger = EventLogger("https://events.example.com", logging_token, queue_folder="/var/lib/shop/events")
    logger.log("order placed", {"order": 1001})
    logger.close()
"""

import atexit
import gzip
import json
import random
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Callable, Dict, List, NamedTuple, Optional

from .disk_queue import DiskQueue, QueueInUse

__all__ = ["EventLogger", "QueueInUse", "Stats"]

RETRYABLE = {"UNAVAILABLE", "OUTCOME_UNKNOWN", "INTERNAL_ERROR", "RATE_LIMIT_EXCEEDED"}
IN_FUTURE = "EVENT_IN_FUTURE"
MAX_AHEAD_MS = 600_000
# What was learned of the service's clock holds this long.
CLOCK_SECONDS = 3_600
MAX_EVENT_CHARACTERS = 262_144


class Stats(NamedTuple):
    waiting: int
    stored: int
    refused: int
    dropped: int
    #: Whether some events wait in memory although a folder was given: the disk cannot be written.
    in_memory: bool


class _Event:
    __slots__ = ("n", "type", "key", "payload", "at", "dated", "date", "sent", "not_before")

    def __init__(self, n: int, type: str, key: str, payload: str, at: int, dated: bool, date: Optional[int]) -> None:
        self.n, self.type, self.key, self.payload, self.at, self.dated, self.date = n, type, key, payload, at, dated, date
        # Whether a request with this date may have stored it: then it keeps that.
        self.sent = date is not None
        self.not_before = 0.0


class EventLogger:
    """
    :param queue_folder: where events wait, so that they outlive the process; None: in memory
    :param sync: "always": each event is synced to disk by log(); "batch": before it is sent; "never"
    :param max_events: events that wait at most
    :param drop: which event is dropped beyond that: "newest" (log returns False) or "oldest"; stats.dropped counts them
    :param on_refused: called with the type, the payload's text, the code and the details of an event that is refused for good
    """

    def __init__(
        self,
        url: str,
        logging_token: str,
        *,
        queue_folder: Optional[str] = None,
        sync: str = "batch",
        max_events: int = 100_000,
        drop: str = "newest",
        max_batch_events: int = 1_000,
        linger: float = 0.5,
        timeout: float = 30.0,
        on_refused: Optional[Callable[[str, str, str, str], None]] = None,
    ) -> None:
        if drop not in ("newest", "oldest"):
            raise ValueError("drop must be newest or oldest")
        self._endpoint = urllib.parse.urljoin(url, "/v1/events")
        # Its response has the time of the service.
        self._clock_endpoint = urllib.parse.urljoin(url, "/livez")
        self._token = logging_token
        self._max_events, self._drop, self._linger, self._timeout = max_events, drop, linger, timeout
        self._max_batch = self._batch = max_batch_events
        self._on_refused = on_refused
        self._name = str(uuid.uuid4())
        self._changed = threading.Condition()
        self._events: Dict[int, _Event] = {}
        self._stored = self._refused = self._dropped = 0
        self._warned = set()
        self._in_memory = self._closed = self._hurried = self._aborted = False
        # How far this machine's clock is ahead of the service's, in ms (behind it: less than 0), as long as nobody sets it: the time
        # of the service was learned, and the difference of wall and steady clock was this.
        self._ahead, self._learned, self._base = 0, None, 0.0
        self._disk: Optional[DiskQueue] = None
        try:
            self._disk = None if queue_folder is None else DiskQueue(queue_folder, sync)
        except OSError as error:
            self._use_memory(error)
        self._next = 1
        if self._disk is not None:
            self._next = self._disk.next_number
            for e in self._disk.waiting:
                self._events[e["n"]] = _Event(e["n"], e["type"], e["key"], e["payload"], e["at"], e["dated"], e.get("date"))
            self._disk.waiting = []
        self._thread = threading.Thread(target=self._run, name="tidemark", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    @property
    def stats(self) -> Stats:
        with self._changed:
            return Stats(len(self._events), self._stored, self._refused, self._dropped, self._in_memory)

    def log(self, type: str, payload: dict, *, created_at: Optional[datetime] = None, key: Optional[str] = None) -> bool:
        """Accepts an event. Neither waits for the service nor raises for its sake.

        :returns: False if the queue is full or closed
        :raises ValueError, TypeError: for what the service would never store
        """
        _check_text("type", type)
        if key is not None:
            _check_text("key", key)
        if not isinstance(payload, dict):
            raise TypeError("payload must be a dict")
        text = json.dumps(payload, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()  # Raises for a lone surrogate.
        if len(text) > MAX_EVENT_CHARACTERS:
            raise ValueError(f"the payload has {len(text)} characters of JSON; at most {MAX_EVENT_CHARACTERS} are allowed")
        at = time.time_ns() // 1_000_000 if created_at is None else _milliseconds(created_at)
        with self._changed:
            if self._closed or (len(self._events) >= self._max_events and not self._make_room()):
                self._dropped += 1
                return False
            n = self._next
            event = _Event(n, type, key or f"{self._name}-{n}", text, at, created_at is not None, None)
            if self._disk is not None:
                line = {"type": type, "key": event.key, "at": at, "dated": event.dated}
                try:
                    self._disk.append(n, line, text)
                except OSError as error:
                    self._use_memory(error)
            self._next = n + 1
            self._events[n] = event
            if len(self._events) == 1 or len(self._events) == self._batch:
                self._changed.notify_all()
        return True

    def flush(self, timeout: Optional[float] = None) -> bool:
        """Sends what waits now. :returns: whether all of it is stored or refused for good"""
        with self._changed:
            last = self._next
            self._hurried = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not any(n < last for n in self._events), timeout)

    def close(self, timeout: float = 10.0) -> int:
        """Accepts no more events and sends what waits. :returns: how many are left; those on disk are sent by the next process"""
        with self._changed:
            if self._aborted:
                return len(self._events)
            self._closed = True
        self.flush(timeout)
        with self._changed:
            self._aborted = True
            self._changed.notify_all()
        self._thread.join(self._timeout + 1)
        atexit.unregister(self.close)
        with self._changed:
            if self._disk is not None and not self._thread.is_alive():
                try:
                    self._disk.close()
                except OSError as error:
                    self._use_memory(error)
            return len(self._events)

    def __enter__(self) -> "EventLogger":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make_room(self) -> bool:
        if self._drop == "newest":
            return False
        oldest = next(iter(self._events))
        self._settle([oldest])
        self._dropped += 1
        return True

    def _settle(self, numbers: List[int]) -> None:
        for n in numbers:
            self._events.pop(n, None)
        if self._disk is not None:
            try:
                self._disk.done(numbers)
            except OSError as error:
                self._use_memory(error)

    def _use_memory(self, error: OSError) -> None:
        """A folder that cannot be written stops neither the logger nor the program: the events are in memory as well."""
        self._in_memory = True
        self._warn("disk", f"events wait in memory, the folder of the queue cannot be written: {error}")

    def _run(self) -> None:
        failures = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._events or self._aborted)
                if failures == 0 and not self._hurried and len(self._events) < self._batch:
                    self._changed.wait_for(lambda: self._hurried or self._aborted or len(self._events) >= self._batch, self._linger)
                if self._aborted:
                    return
            try:
                wait = self._ask_time()
                if wait is None:
                    with self._changed:
                        batch = self._take()
                    if not batch:
                        self._pause(0.05)
                        continue
                    wait = self._send(batch)
            except Exception as error:  # Whatever fails here must not end the thread: the events wait.
                self._warn("bug", f"unexpected error, retrying: {error!r}")
                wait = 0.0
            failures = 0 if wait is None else failures + 1
            with self._changed:
                if not self._events:
                    self._hurried = False
                self._changed.notify_all()
            if wait is not None:
                self._pause(max(wait, min(30.0, 0.25 * 2 ** min(failures, 7)) * random.uniform(0.5, 1.0)))

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._aborted, seconds)

    def _is_time_known(self) -> bool:
        now = time.monotonic()
        return self._learned is not None and now - self._learned < CLOCK_SECONDS and abs(time.time() - now - self._base) < 1.0

    def _learn(self, ahead: int) -> None:
        now = time.monotonic()
        self._ahead, self._learned, self._base = ahead, now, time.time() - now

    def _ask_time(self) -> Optional[float]:
        """An event keeps the time that it is sent with. :returns: None if the time of the service is known now, else 0.0"""
        with self._changed:
            if self._is_time_known() or all(event.date is not None or event.dated for event in self._events.values()):
                return None
        sent_at = _now()
        try:
            with urllib.request.urlopen(self._clock_endpoint, timeout=self._timeout) as response:
                date = response.headers.get("Date")
        except urllib.error.HTTPError as error:
            # A proxy that does not know the path has a clock as well.
            date = error.headers.get("Date")
            error.close()
        except Exception as error:
            self._warn("retry", f"events wait, {self._clock_endpoint} does not answer: {error}")
            return 0.0
        try:
            server = _milliseconds(parsedate_to_datetime(date))
        except (TypeError, ValueError):
            self._learn(0)
            return None
        # The header has whole seconds, and servers renew it once a second. Where this machine's clock may be right it is taken for right.
        is_right = sent_at - server - 2_000 <= 0 <= _now() - server
        self._learn(0 if is_right else _now() - server)
        return None

    def _take(self) -> List[_Event]:
        """The next events, each with the date that it keeps."""
        now = time.monotonic()
        batch: List[_Event] = []
        size = 0
        for event in self._events.values():
            if event.not_before > now:
                continue
            size += len(event.payload) + 500
            if batch and (len(batch) >= self._batch or size > 4_000_000):
                break
            batch.append(event)
        ahead = self._ahead if self._is_time_known() else 0
        self._write_dates({e.n: e.at if e.dated else e.at - ahead for e in batch if e.date is None})
        return [event for event in batch if event.date is not None]

    def _write_dates(self, dates: Dict[int, int]) -> None:
        if not dates:
            return
        if self._disk is not None:
            try:
                self._disk.date(dates)
            except OSError as error:
                self._use_memory(error)
                # The next process would date these otherwise, and they would be stored twice: they wait until the disk can be written.
                held = [n for n, at in dates.items() if at != self._events[n].at and self._disk.has(n)]
                for n in held:
                    self._events[n].date = None
                    self._events[n].not_before = time.monotonic() + 1.0
                    del dates[n]
        for n, at in dates.items():
            self._events[n].date = at

    def _send(self, batch: List[_Event]) -> Optional[float]:
        """:returns: None if all went well, else after how many seconds to go on"""
        body = '{"events":[' + ",".join(map(_json, batch)) + "]}"
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": "application/json",
            "Content-Encoding": "gzip",
        }
        request = urllib.request.Request(self._endpoint, gzip.compress(body.encode(), 1), headers)
        sent_at = _now()
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as response:
                results = json.loads(response.read())["results"]
            if len(results) != len(batch):
                raise ValueError("the response is not one of Tidemark")
        except urllib.error.HTTPError as error:
            return self._refused_whole(batch, error)
        except Exception as error:  # Nobody knows what is stored: keys and dates make a repeat safe.
            for event in batch:
                event.sent = True
            self._warn("retry", f"events wait, {self._endpoint} does not take them: {error}")
            return 0.0
        return self._answered(batch, results, sent_at)

    def _refused_whole(self, batch: List[_Event], error: urllib.error.HTTPError) -> Optional[float]:
        text = error.read()
        try:
            answer = json.loads(text)
            code, details = answer.get("code", ""), answer.get("details", "")
        except (ValueError, AttributeError):
            code, details = "", ""
        if error.code == 413 or (error.code == 400 and code):
            if len(batch) > 1:
                self._batch = (len(batch) + 1) // 2
            else:
                self._refuse(batch[0], code, details)
                self._batch = self._max_batch
            return None
        if code in ("", "OUTCOME_UNKNOWN"):
            for event in batch:
                event.sent = True
        if error.code not in (429, 500, 502, 503, 504):
            self._warn("retry", f"events wait, {self._endpoint} does not take them: {details or error}")
        after = error.headers.get("Retry-After", "0")
        return float(after) if after.isdigit() else 0.0

    def _answered(self, batch: List[_Event], results: List[dict], sent_at: int) -> Optional[float]:
        done: List[int] = []
        dates: Dict[int, int] = {}
        wait: Optional[float] = None
        for event, result in zip(batch, results):
            code = result.get("code", "")
            if "eventId" in result:
                done.append(event.n)
                with self._changed:
                    self._stored += event.n in self._events
            elif code in RETRYABLE:
                event.sent = event.sent or code == "OUTCOME_UNKNOWN"
                wait = 0.0
            elif code == IN_FUTURE and (event.dated or event.sent) and result.get("aheadMs", MAX_AHEAD_MS) < MAX_AHEAD_MS:
                event.not_before = time.monotonic() + result["aheadMs"] / 1_000
            elif code == IN_FUTURE and not event.dated and "serverTime" in result:
                server = _milliseconds(datetime.fromisoformat(result["serverTime"].replace("Z", "+00:00")))
                if not dates:
                    self._learn(max(0, _now() - server))
                # It was not stored with the earlier date. Never later than the time that the service has just shown.
                dates[event.n] = min(event.at - max(0, sent_at - server), server)
            else:
                self._refuse(event, code, result.get("details", ""))
        with self._changed:
            self._settle(done)
            self._write_dates({n: at for n, at in dates.items() if n in self._events})
            self._batch = min(2 * self._batch, self._max_batch)
        return wait

    def _refuse(self, event: _Event, code: str, details: str) -> None:
        with self._changed:
            self._settle([event.n])
            self._refused += 1
        if self._on_refused is None:
            self._warn("refused", f"an event was refused for good: {code} {details}")
            return
        try:
            self._on_refused(event.type, event.payload, code, details)
        except Exception as error:
            self._warn("callback", f"on_refused failed: {error!r}")

    def _warn(self, what: str, text: str) -> None:
        """Once for each reason."""
        if what not in self._warned:
            self._warned.add(what)
            print(f"tidemark-client: {text}", file=sys.stderr)


def _json(event: _Event) -> str:
    date = datetime.fromtimestamp(event.date / 1_000, timezone.utc).isoformat(timespec="milliseconds")
    head = json.dumps({"typeName": event.type, "createdAt": date.replace("+00:00", "Z"), "key": event.key}, ensure_ascii=False)
    return f'{head[:-1]},"payload":{event.payload}}}'


def _now() -> int:
    return time.time_ns() // 1_000_000


def _milliseconds(moment: datetime) -> int:
    if moment.tzinfo is None:
        raise ValueError("created_at needs a time zone")
    return round(moment.timestamp() * 1_000)


def _check_text(what: str, text: str) -> None:
    if not isinstance(text, str):
        raise TypeError(f"{what} must be a str")
    if not 1 <= len(text) <= 200:
        raise ValueError(f"{what} must have 1 to 200 characters")
    text.encode()  # Raises for a lone surrogate.
    if what == "type" and "\0" in text:
        raise ValueError("type must not contain NUL")
