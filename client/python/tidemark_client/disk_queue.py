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
import socket
import threading
import time
import uuid
from typing import Dict, List, Optional, Tuple

SEGMENT_BYTES = 4 * 1_048_576
# How often the owner of a folder shows that it lives, and how long one elsewhere is watched for that.
BEAT_SECONDS = 1.0
WATCHED_SECONDS = 3.5


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
        self._lock = _FolderLock(folder)
        names = sorted(name for name in os.listdir(folder) if name.endswith(".queue") and name[:-6].isdigit())
        self.waiting, self._open, highest, self.damaged = read_segments(folder, names)
        self._segment_of = {n: int(name[:-6]) for name, numbers in self._open.items() for n in numbers}
        self._left = {int(name[:-6]): len(numbers) for name, numbers in self._open.items()}
        self.next_number = highest + 1
        self._number = int(names[-1][:-6]) if names else 0
        self._file = -1
        self._size = 0
        self._is_cut = False
        try:
            self._rotate()
            self._remove_done()
        except OSError:
            pass  # A full disk, for example. Each write tries again, and tells its caller.

    def has(self, number: int) -> bool:
        """Whether an event is on disk, and not done."""
        return number in self._segment_of

    def append(self, number: int, line: Dict[str, object], payload: str) -> None:
        head = json.dumps({"n": number, **line}, ensure_ascii=False, separators=(",", ":"))
        self._write(f'{head[:-1]},"payload":{payload}}}')
        self._segment_of[number] = self._number
        self._left[self._number] += 1
        if self._sync == "always":
            os.fsync(self._file)

    def date(self, dates: Dict[int, int]) -> None:
        known = {str(n): at for n, at in dates.items() if n in self._segment_of}
        if not known:
            return
        self._write(json.dumps({"dates": known}, separators=(",", ":")))
        if self._sync != "never":
            os.fsync(self._file)

    def done(self, numbers: List[int]) -> None:
        """:raises OSError: if no new segment can begin: the events are done all the same, and the old segment goes on"""
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
        file, self._file = self._file, -1
        self._lock.release()
        if file >= 0:
            os.close(file)

    def _write(self, line: str) -> None:
        if self._lock.is_lost:
            raise OSError(f"another process has taken the queue in {self._folder}")
        if self._file < 0:
            self._rotate()
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
        """:raises OSError: if no segment can begin: the one before goes on"""
        number = self._number + 1
        path = os.path.join(self._folder, f"{number:08d}.queue")
        before = self._file
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL, 0o600)
        self._number = number
        self._size = 0
        self._is_cut = False
        self._left.setdefault(number, 0)
        if before >= 0:
            os.close(before)

    def _remove_done(self) -> None:
        for number in sorted(self._left):
            if number == self._number or self._left[number] > 0:
                return
            try:
                os.remove(os.path.join(self._folder, f"{number:08d}.queue"))
            except FileNotFoundError:
                pass
            del self._left[number]


class _FolderLock:
    """Which process uses a folder: the file `lock` names it, as that of the Node client does (client/src/disk-queue.ts).

    Process ids are compared within one boot and one namespace, where they mean something. Elsewhere, as in two containers, the owner
    lives as long as it goes on to renew the file.
    """

    _own: set = set()

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, "lock")
        self._id = str(uuid.uuid4())
        pid = os.getpid()
        owner = {"pid": pid, "start": _start_of(pid), "place": _place(), "host": socket.gethostname(), "id": self._id}
        self._text = json.dumps(owner, separators=(",", ":"))
        self.is_lost = False
        self._released = threading.Event()
        self._take()
        self._own.add(self._id)
        threading.Thread(target=self._beat, name="tidemark-lock", daemon=True).start()

    def release(self) -> None:
        self._released.set()
        self._own.discard(self._id)
        try:
            text = _read(self._path)
            if text == self._text or (text is not None and not (_owner_of(text) or {}).get("id")):
                os.remove(self._path)
        except OSError:
            pass  # What is left names a process that has ended.

    def _beat(self) -> None:
        while not self._released.wait(BEAT_SECONDS):
            text = _read(self._path)
            # A folder that cannot be read now, or was moved away, may come back.
            if text is not None:
                self.is_lost = text != self._text
            try:
                if text == self._text:
                    os.utime(self._path)
            except OSError:
                pass

    def _take(self) -> None:
        for _ in range(100):
            if self._made():
                return
            text = _read(self._path)
            if text is None:
                continue
            owner = _owner_of(text)
            if owner is not None and self._is_alive(owner):
                raise QueueInUse(
                    f"the folder of the queue is used by process {owner['pid']} on {owner.get('host') or 'this machine'}: "
                    f"{self._path} names it; give each process a folder of its own"
                )
            self._remove(text)
        raise QueueInUse(f"{self._path}: other processes take the folder of the queue at the same time")

    def _made(self) -> bool:
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return False
        try:
            data = self._text.encode()
            if os.write(file, data) < len(data):
                raise OSError(f"{self._path} cannot be written whole")
        except OSError:
            os.remove(self._path)
            raise
        finally:
            os.close(file)
        return True

    def _remove(self, text: str) -> None:
        """Removes the lock that has this text; not one that another process has made meanwhile."""
        aside = f"{self._path}.{self._id}"
        try:
            os.rename(self._path, aside)
            if _read(aside) != text:
                os.link(aside, self._path)
        except (FileNotFoundError, FileExistsError):
            pass
        finally:
            if os.path.exists(aside):
                os.remove(aside)

    def _is_alive(self, owner: dict) -> bool:
        if owner.get("id") in self._own:
            return True
        pid, start = owner["pid"], owner.get("start")
        if owner.get("place", _place()) != _place():
            return self._beats()
        # This process is another one than that which had its id.
        return pid != os.getpid() and _is_running(pid) and (not start or start == _start_of(pid))

    def _beats(self) -> bool:
        """Whether somebody renews the lock. By what changes, as clocks of two machines may differ."""
        before = _time_of(self._path)
        end = time.monotonic() + WATCHED_SECONDS
        while time.monotonic() < end:
            time.sleep(0.1)
            if _time_of(self._path) != before:
                return True
        return False


def _read(path: str) -> Optional[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def _time_of(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _owner_of(text: str) -> Optional[dict]:
    """None for a lock that names nobody, such as one that was cut off."""
    try:
        owner = json.loads(text)
    except ValueError:
        return None
    if isinstance(owner, int):  # Earlier releases wrote the process id alone.
        owner = {"pid": owner}
    return owner if isinstance(owner, dict) and isinstance(owner.get("pid"), int) and owner["pid"] > 0 else None


def _place() -> str:
    """In which process ids mean the same: this boot and this namespace on Linux, else this machine."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _start_of(pid: int) -> str:
    """When a process began, in ticks since the boot; empty where that is not known."""
    text = _read(f"/proc/{pid}/stat")
    # The name, in parentheses, may have spaces.
    return "" if text is None else text[text.rindex(")") + 2 :].split(" ")[19]


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
