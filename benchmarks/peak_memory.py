"""How much memory a piece of work needed on top of what was there before it."""

from __future__ import annotations

import resource
import sys
import threading
from types import TracebackType
from typing import Self

MEGABYTE = 1 << 20


class PeakMemory:
    """Peak resident memory inside the `with` block, over that at its start, in bytes.

    On Linux the kernel's own high-water mark (VmHWM) is set back at the start, so that the peak
    of imports, loading and warm-up cannot hide that of the work; elsewhere it is ru_maxrss, which
    can only be compared with its value at the start.
    """

    over_start: int

    def __enter__(self) -> Self:
        try:
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")
        except OSError:
            pass
        self._start = _high_water_mark()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.over_start = _high_water_mark() - self._start


class PeakPrivateMemory:
    """Peak of the memory that is the process's own (Linux's RssAnon), over that at the start.

    For memory-mapped input: pages of the mapped file count as resident, but are a cache that the
    system takes back when it likes. Sampled every millisecond by a thread; None where the system
    does not tell.
    """

    over_start: int | None

    def __enter__(self) -> Self:
        self._start = self._peak = _status("RssAnon")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while self._start is not None and not self._stop.wait(0.001):
            self._peak = max(self._peak or 0, _status("RssAnon") or 0)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        known = self._start is not None and self._peak is not None
        self.over_start = self._peak - self._start if known else None  # type: ignore[operator]


def _high_water_mark() -> int:
    # Not ru_maxrss on Linux: a child inherits it from the process that started it.
    from_status = _status("VmHWM")
    if from_status is not None:
        return from_status
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _status(key: str) -> int | None:
    try:
        with open("/proc/self/status") as file:
            for line in file:
                if line.startswith(key + ":"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None
