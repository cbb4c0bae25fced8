"""One sentence for whatever a library says about a file that it cannot read."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from evencover.data.identity import Identity, identity_of, refuse_changed
from evencover.data.location import Location
from evencover.errors import FileError, InputError, one_line

# What the machine lacks, which is no fault of the file.
_SHORT_OF = {
    errno.ENOMEM: "there is not enough memory; give it more, or use smaller parts",
    errno.EMFILE: "too many files are open; raise the limit (ulimit -n)",
    errno.ENFILE: "too many files are open on this machine",
    errno.EIO: "the disk or network gives an error",
}


@contextmanager
def reading(location: Location, known: Identity | None = None) -> Iterator[Identity]:
    """Turn what libraries say about a broken file into one sentence that names it.

    The file must be the same when the reading ends as when it begins, and the one that is `known`
    from an earlier opening. Gives what it is known by.
    """
    identity = known
    try:
        identity = identity_of(location) if known is None else known
        if known is not None:
            refuse_changed(location, known)
        yield identity
        refuse_changed(location, identity)
    except InputError:
        raise
    except MemoryError as error:
        raise FileError(f"Cannot read '{location}': {_SHORT_OF[errno.ENOMEM]}.") from error
    except FileNotFoundError as error:
        raise FileError(f"Cannot read '{location}': there is no such file.") from error
    except PermissionError as error:
        raise FileError(f"Cannot read '{location}': permission denied.") from error
    except Exception as error:
        number = error.errno if isinstance(error, OSError) else None
        if number in _SHORT_OF:
            raise FileError(f"Cannot read '{location}': {_SHORT_OF[number]}.") from error
        if identity is not None:  # half of what is being written reads like a broken file
            with suppress(OSError):
                refuse_changed(location, identity)
        raise InputError(
            f"Cannot read '{location}': the file is truncated or not of the kind its ending says "
            f"({one_line(error)})."
        ) from error
