"""Write formulas as MathML, which browsers show without a script or a connection."""

import re
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml


def markup(node: nodes.Element, *, as_block: bool) -> str:
    """Convert a formula; braces of sets are as high as its letters."""
    text: str = tex2mathml(node.astext(), as_block=as_block)
    return re.sub(r"<mo>([{}])</mo>", r'<mo stretchy="false">\1</mo>', text)


def inline(translator: Any, node: nodes.math) -> None:
    """Write a formula within a sentence."""
    translator.body.append(markup(node, as_block=False))
    raise nodes.SkipNode


def block(translator: Any, node: nodes.math_block) -> None:
    """Write a formula in a paragraph of its own."""
    translator.body.append(f'<div class="math">{markup(node, as_block=True)}</div>')
    raise nodes.SkipNode


def setup(sphinx: Any) -> dict[str, bool]:
    """Register the renderer."""
    sphinx.add_html_math_renderer(
        "mathml", inline_renderers=(inline, None), block_renderers=(block, None)
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}
