"""One sentence for whatever a library says about a file that it cannot read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from evencover.errors import InputError


@contextmanager
def reading(location: Any) -> Iterator[None]:
    """Turn what libraries say about a broken file into one sentence that names it."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except FileNotFoundError as error:
        raise InputError(f"Cannot read '{location}': there is no such file.") from error
    except PermissionError as error:
        raise InputError(f"Cannot read '{location}': permission denied.") from error
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(
            f"Cannot read '{location}': the file is truncated or not of the kind its ending says "
            f"({reason})."
        ) from error
