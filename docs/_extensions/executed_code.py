"""Which modules a measurement executed, and a digest of their code without its prose.

A step of `make evidence` runs with `scripts/tracing` on its path. Every process that it starts
then adds the modules it has loaded to a file. The digest ignores docstrings, comments and blank
lines, so a better sentence does not make a number old.
"""

import ast
import hashlib
import io
import re
import tokenize
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
# What a module reads that is not Python: patterns below its folder.
READS = {
    "src/evencover/_kernels/native.py": "cpp/**/*pp",
    "src/evencover/data/bundled.py": "**/*.npz",
}
CPP_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def digest(modules: Iterable[str]) -> str:
    """Return a short digest of the code of modules, named by their paths below the root."""
    content = hashlib.sha256()
    for name in sorted(modules):
        path = ROOT / name
        reads = sorted(path.parent.glob(READS[name])) if name in READS else []
        for file in (path, *reads):
            content.update(file.relative_to(ROOT).as_posix().encode() + b"\0")
            content.update(code(file) if file.exists() else b"gone")
    return content.hexdigest()[:16]


def code(path: Path) -> bytes:
    """Return the content of a file without docstrings, comments and blank lines."""
    if path.suffix == ".py":
        text = without_prose(path.read_text("utf-8"))
    elif path.suffix in (".cpp", ".hpp"):
        text = CPP_COMMENT.sub("", path.read_text("utf-8"))
    else:
        return path.read_bytes()
    lines = (line.rstrip() for line in text.splitlines())
    return "\n".join(filter(None, lines)).encode()


def without_prose(text: str) -> str:
    """Blank out the docstrings and comments of Python code."""
    spans = [
        (token.start, token.end)
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    ]
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and body:
            first = body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                end = first.end_lineno or first.lineno, first.end_col_offset or 0
                spans.append(((first.lineno, first.col_offset), end))
    lines = text.splitlines()
    for (top, left), (bottom, right) in spans:
        start, stop = lines[top - 1][:left], lines[bottom - 1][right:]
        lines[top - 1 : bottom] = [start + stop, *[""] * (bottom - top)]
    return "\n".join(lines)
