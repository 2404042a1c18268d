"""Events that wait, on disk: an append-only journal in a folder, which the Node client reads and writes as well.

Each segment `NNNNNNNN.queue` has a JSON object a line:

    {"n":1,"type":"order","key":"k-1","at":1767225600000,"dated":false,"payload":{…}}   an event, and when it was logged
    {"dates":{"1":1767225600000}}    the time that an event is sent with, written before it is sent for the first time
    {"done":[1]}                     events that are stored, refused for good or dropped

A line that is not whole was never accepted. Segments are removed oldest first, once their events are done: a later one may
have the dates of their events.
"""

import json
import os
from typing import Dict, List, Tuple

SEGMENT_BYTES = 4 * 1_048_576


class QueueInUse(RuntimeError):
    """Another process uses the folder."""


class DiskQueue:
    def __init__(self, folder: str, sync: str) -> None:
        if sync not in ("always", "batch", "never"):
            raise ValueError("sync must be always, batch or never")
        self._folder = folder
        self._sync = sync
        self.damaged = 0
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._lock()
        names = sorted(name for name in os.listdir(folder) if name.endswith(".queue") and name[:-6].isdigit())
        self.waiting, self._open, highest, self.damaged = read_segments(folder, names)
        self._segment_of = {n: int(name[:-6]) for name, numbers in self._open.items() for n in numbers}
        self._left = {int(name[:-6]): len(numbers) for name, numbers in self._open.items()}
        self.next_number = highest + 1
        self._number = int(names[-1][:-6]) if names else 0
        self._file = -1
        self._unsynced = False
        self._rotate()
        self._remove_done()

    def append(self, number: int, line: Dict[str, object], payload: str) -> None:
        head = json.dumps({"n": number, **line}, ensure_ascii=False, separators=(",", ":"))
        self._segment_of[number] = self._number
        self._left[self._number] += 1
        try:
            self._write(f'{head[:-1]},"payload":{payload}}}')
        except OSError:
            self._left[self._segment_of.pop(number)] -= 1
            raise
        if self._sync == "always":
            os.fsync(self._file)

    def date(self, dates: Dict[int, int]) -> None:
        self._write(json.dumps({"dates": {str(n): at for n, at in dates.items()}}, separators=(",", ":")))
        if self._sync != "never":
            os.fsync(self._file)

    def done(self, numbers: List[int]) -> None:
        known = [n for n in numbers if n in self._segment_of]
        if not known:
            return
        # If this cannot be written the events are sent again: their keys and dates make them the same.
        try:
            self._write(json.dumps({"done": known}, separators=(",", ":")))
        except OSError:
            pass
        for n in known:
            self._left[self._segment_of.pop(n)] -= 1
        if self._size > SEGMENT_BYTES or (not self._segment_of and self._size > 65_536):
            self._rotate()
        self._remove_done()

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            os.remove(os.path.join(self._folder, "lock"))

    def _write(self, line: str) -> None:
        data = (line + "\n").encode()
        # A line that was cut off by a full disk ends before the next one.
        if self._is_cut:
            data = b"\n" + data
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
            self._is_cut = False
        finally:
            if 0 < written < len(data):
                self._is_cut = True
            self._size += written

    def _rotate(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._number += 1
        path = os.path.join(self._folder, f"{self._number:08d}.queue")
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL, 0o600)
        self._size = 0
        self._is_cut = False
        self._left.setdefault(self._number, 0)

    def _remove_done(self) -> None:
        for number in sorted(self._left):
            if number == self._number or self._left[number] > 0:
                return
            os.remove(os.path.join(self._folder, f"{number:08d}.queue"))
            del self._left[number]

    def _lock(self) -> None:
        path = os.path.join(self._folder, "lock")
        while True:
            try:
                file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                os.write(file, str(os.getpid()).encode())
                os.close(file)
                return
            except FileExistsError:
                try:
                    with open(path) as held:
                        owner = int(held.read() or "0")
                except (OSError, ValueError):
                    owner = 0
                if owner not in (0, os.getpid()) and _is_running(owner):
                    raise QueueInUse(f"{self._folder} is used by process {owner}") from None
                try:
                    os.remove(path)
                except FileNotFoundError:
                    pass


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def read_segments(folder: str, names: List[str]) -> Tuple[List[dict], Dict[str, List[int]], int, int]:
    """The events that wait, oldest first; which segment has which of them; the highest number; lines that were damaged."""
    events: Dict[int, dict] = {}
    segments: Dict[int, str] = {}
    highest = damaged = 0
    for name in names:
        with open(os.path.join(folder, name), "rb") as file:
            lines = file.read().split(b"\n")
        damaged += 1 if lines.pop() else 0
        for line in lines:
            if not line:
                continue
            try:
                entry = json.loads(line)
                if "dates" in entry:
                    for n, at in entry["dates"].items():
                        if int(n) in events:
                            events[int(n)]["date"] = int(at)
                elif "done" in entry:
                    for n in entry["done"]:
                        events.pop(n, None)
                        segments.pop(n, None)
                else:
                    text = line.decode()
                    # The payload is the last member: its own text is kept.
                    payload = text[text.index(',"payload":') + 11 : -1]
                    highest = max(highest, entry["n"])
                    segments[entry["n"]] = name
                    events[entry["n"]] = {**{k: entry[k] for k in ("n", "type", "key", "at", "dated")}, "payload": payload}
            except (ValueError, KeyError, TypeError, AttributeError):
                damaged += 1
    held: Dict[str, List[int]] = {name: [] for name in names}
    for n, name in segments.items():
        held[name].append(n)
    return [events[n] for n in sorted(events)], held, highest, damaged
