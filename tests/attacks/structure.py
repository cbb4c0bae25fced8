"""Damage inside a file whose wrapping stays right, so that it gets past the first look at it.

A byte that is changed in an archive is found by its CRC, one in a header by its length. What comes
after these checks is met only by files that are put together again.
"""

import io
import random
import re
import zipfile

HOSTILE = [b"-1", b"0", b"1e308", b"-0.0", b"NaN", b"Infinity", b"null", b"true", b"[]", b"{}"]
HOSTILE += [b'""', b'"\\ud800"', b'"1e-99999999"', b"[[1]]", b"1" * 400, b"9223372036854775808"]
HOSTILE += [b"4294967296", b"1099511627776", b"2.5", b'"F64"', b'"<f8"', b'"O"', b'"a"', b"1"]
TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|true|false|null|True|False')


def swapped_token(rng: random.Random, text: bytes) -> bytes:
    """One number, name or word of a text is another, or one that the text has elsewhere."""
    found = list(TOKEN.finditer(text))
    if not found:
        return text
    old = rng.choice(found)
    new = rng.choice(found).group() if rng.random() < 0.4 else rng.choice(HOSTILE)
    return text[: old.start()] + new + text[old.end() :]


def rewrapped(rng: random.Random, kind: str, content: bytes, change) -> bytes | None:
    """The content with `change` done inside it; None for kinds without a wrapping."""
    if kind == "npz":
        return _archive(rng, content, change)
    if kind in ("safetensors", "model"):
        return _headed(rng, content, change)
    if kind == "npy":
        return _array(rng, content)
    return None


def _archive(rng, content, change):
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(made, "w") as new:
        chosen = rng.choice(old.namelist())
        for entry in old.infolist():
            member = old.read(entry)
            if entry.filename == chosen:
                member = _array(rng, member) if rng.random() < 0.5 else change(member)
            new.writestr(entry, member, entry.compress_type)
    return made.getvalue()


def _array(rng, content):
    """The header of an .npy array is a dictionary whose length is in bytes 8 and 9."""
    length = int.from_bytes(content[8:10], "little")
    header = swapped_token(rng, content[10 : 10 + length])[:65_000]
    return content[:8] + len(header).to_bytes(2, "little") + header + content[10 + length :]


def _headed(rng, content, change):
    """Length, JSON, numbers; the JSON of a model has more JSON in a text."""
    end = 8 + int.from_bytes(content[:8], "little")
    header, numbers = content[8:end], content[end:]
    if rng.random() < 0.2:
        numbers = change(numbers)
    elif b"\\" in header and rng.random() < 0.8:
        inner = header.replace(b'\\"', b'"')  # tokens of the text within the text
        found = list(TOKEN.finditer(inner))
        for _ in range(rng.choice([1, 1, 2])):
            old, new = rng.choice(found).group(), rng.choice([*HOSTILE, rng.choice(found).group()])
            old, new = (each.replace(b'"', b'\\"') for each in (old, new))
            at = [match.start() for match in re.finditer(re.escape(old), header)]
            if at:
                place = rng.choice(at)
                header = header[:place] + new + header[place + len(old) :]
    else:
        header = swapped_token(rng, header)
    return len(header).to_bytes(8, "little") + header + numbers
