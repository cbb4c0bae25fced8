"""Select about a thousand characters: Latin, Greek, Cyrillic, Kana, CJK and symbols."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

N_CJK = 300
FEWEST_PACKAGES = {"training": 4, "held out": 3}  # that must have a character


def _letters(first: int, last: int) -> str:
    """Return the letters of a range, without combining ones."""
    return "".join(
        chr(code) for code in range(first, last + 1) if unicodedata.category(chr(code))[0] == "L"
    )


def _common_cjk(n: int) -> str:
    """Return ideographs of the first standards of Japan, China and Taiwan, evenly spaced.

    Taiwan's first plane has only frequent characters, by stroke count.
    """
    found = []
    for code in range(0x4E00, 0x9FA6):
        character = chr(code)
        try:
            big5 = character.encode("big5")
            simplified = character.encode("gb2312")
            japanese = character.encode("shift_jis")
        except UnicodeEncodeError:
            continue
        # The first levels of the three: 5401, 3755 and 2965 frequent characters.
        if big5 < b"\xc6\x7f" and simplified < b"\xd8\xa1" and japanese < b"\x98\x9f":
            found.append((big5, character))
    ordered = [character for _, character in sorted(found)]
    return "".join(ordered[place] for place in np.linspace(0, len(ordered) - 1, n).astype(int))


SCRIPTS: dict[str, str] = {
    "Latin": _letters(0x41, 0x7A) + _letters(0xC0, 0x17F),
    "Greek": _letters(0x391, 0x3C9),
    "Cyrillic": _letters(0x401, 0x45F),
    "Kana": _letters(0x3041, 0x3093) + _letters(0x30A1, 0x30F6),
    "CJK": _common_cjk(N_CJK),
    "digits and symbols": (
        "0123456789!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~¡¢£¥¦§©«¬®°±²³µ¶·¹»¼½¾¿×÷"
        "–—‘’“”†‡•…‰‹›€™←↑→↓↔⇒⇔∀∂∃∅∆∇∈∏∑−√∞∠∧∨∩∪∫∴≈≠≡≤≥⊂⊃⊥"
        "①②③④⑤⑥⑦⑧⑨─│┌┐└┘├┤┬┴┼■□▲△▼▽◆◇○◎●★☆♀♂♪♭♯、。「」【】〒"
    ),
}
CANDIDATES = "".join(dict.fromkeys("".join(SCRIPTS.values())))


def script_of(character: str) -> str:
    """Return the script, or type, of a character."""
    return next(name for name, members in SCRIPTS.items() if character in members)


def drawable(
    training: Mapping[str, Sequence[Any]], held_out: Mapping[str, Sequence[Any]]
) -> list[str]:
    """Return characters that enough packages have on both sides, in the order of the candidates."""

    def has_enough(table: Mapping[str, Sequence[Any]], character: str, side: str) -> bool:
        return len({font.package for font in table[character]}) >= FEWEST_PACKAGES[side]

    return [
        character
        for character in CANDIDATES
        if has_enough(training, character, "training")
        and has_enough(held_out, character, "held out")
    ]
