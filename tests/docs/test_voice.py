"""The documentation uses the field's terms; `make lint` checks the spelling.

`FILES` lists what is checked. Of code, comments count; of Python files also strings, which include
docstrings, help and messages.
"""

import io
import re
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[2]
SITE = ROOT / "docs"
GENERATED = {SITE / name for name in ("_build", "api", "commands", "studies", "tutorials")}
CODE = ("src/**/*.py", "src/**/*.?pp", "src/**/*.toml", "scripts/**/*.py", "benchmarks/**/*.py")
FILES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CMakeLists.txt",
    ROOT / "Makefile",
    ROOT / "pyproject.toml",
    ROOT / "benchmarks" / "README.md",
    *sorted(ROOT.glob(".github/**/*.yml")),
    *(path for path in sorted(SITE.rglob("*.md")) if not GENERATED & set(path.parents)),
    *sorted(path for path in ROOT.glob("examples/**/*.*") if path.suffix in (".md", ".py", ".rst")),
    *(path for pattern in CODE for path in sorted(ROOT.glob(pattern))),
]

# A word or phrase of the house -> the term that a practitioner expects.
GLOSSARY = {
    r"promis(e|es|ed|ing)": "guarantee",
    r"says? (next to )?nothing": "uninformative",
    r"pick(s|ed)?": "recommended, choose",
    r"luck(y|ily)?": "sampling noise",
    r"own rows": "the class's examples",
    r"(every|some|any|no)body('s)?|(every|some)one('s)?|whoever": "a role, or nothing",
    r"coins?": "randomization draw",
    r"sets? (that )?(hold|holds|held)|holds? (the|their|its) (true )?(label|class)": "contain",
    r"(is|are) in every set": "always included",
    r"says?|said|tells?|told": "report, print, show, state, raise",
    r"refus(e|es|ed|al|ing)": "reject",
    r"(its|their|the|other|file|an?|without|by|known) endings?": "extension",
    r"(an?|the|its|of|port) address(es)?": "URL or endpoint",
    r"twins?": "simulated data set, or C++ implementation",
    r"whole numbers?": "integer",
    r"same bits|bit for bit": "bit-identical",
    r"learnt": "learned or fitted",
    r"anew": "again",
    r"beside": "next to, compared with",
}
HOUSE_WORD = re.compile(rf"\b({'|'.join(GLOSSARY)})\b", re.IGNORECASE)


def prose(path):
    """Yield the line number and text of what is meant for people; code is left out."""
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING):
                for number, line in enumerate(token.string.splitlines(), token.start[0]):
                    yield number, without_code(line)
        return
    mark = {".cpp": "//", ".hpp": "//", ".md": None, ".rst": None}.get(path.suffix, "#")
    if mark is not None:
        for number, line in enumerate(text.splitlines(), 1):
            yield number, without_code(line.partition(mark)[2])
        return
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        mark = re.match(r"\s*(`{3,}|:{3,})", line)
        if mark and not fence and mark[1].startswith("`"):
            fence = mark[1]
        elif fence:
            fence = "" if line.strip() == fence else fence
        elif not (mark or line.startswith(("    ", ":"))):
            yield number, without_code(line)


def without_code(line):
    """Leave out literals, roles, and the targets of links."""
    line = re.sub(r"(\{\w+\}|:\w+:)?(`+).+?\2", "CODE", line)
    return re.sub(r"\]\([^)]*\)|<[^>]*>|https?://\S+", "]", line)


def show(path):
    return path.relative_to(ROOT).as_posix()


def test_terms_are_those_of_the_field():
    found = [
        f"{show(path)}:{number}: {hit[0]!r}; write: {better}"
        for path in FILES
        for number, line in prose(path)
        if HOUSE_WORD.search(line)
        for pattern, better in GLOSSARY.items()
        for hit in re.finditer(rf"\b({pattern})\b", line, re.IGNORECASE)
    ]
    assert len(FILES) > 200
    assert not found, "\n".join(found)


def test_readme_is_short():
    """700 words of prose, 120 of them before the first code; tables, code and links not counted."""
    text = (ROOT / "README.md").read_text("utf-8")

    def n_words(part):
        for hidden in (r"<picture>.*?</picture>", r"<!--.*?-->", r"```.*?```", r"\]\([^)]*\)"):
            part = re.sub(hidden, "", part, flags=re.DOTALL)
        part = re.sub(r"^(\||    ).*$", "", part, flags=re.MULTILINE)
        return sum(bool(re.search(r"\w", word)) for word in part.split())

    assert n_words(text.partition("```python")[0]) <= 120
    assert n_words(text) <= 700
