"""Sphinx configuration.

``-D plot_gallery=0`` skips running the tutorials, which takes minutes.
"""

import re
import sys
import warnings
from inspect import cleandoc
from pathlib import Path
from textwrap import fill

from evencover import BasePredictor, EvencoverWarning, __version__

HERE = Path(__file__).parent
GALLERIES = ("tutorials", "studies")  # of examples/ and of docs/
sys.path.insert(0, str(HERE / "_extensions"))

project = "evencover"
author = "The evencover developers"
copyright = "the evencover developers"  # noqa: A001
release = version = __version__
extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "command_pages",
    "generated_tables",
    "mathml",
]
exclude_patterns = ["_build", "_extensions", "evidence"]
exclude_patterns += [f"{name}/*.{form}" for name in GALLERIES for form in ("ipynb", "py")]
templates_path = ["_templates"]

# Reference: a page for each name that docs/api.md lists.
numpydoc_show_class_members = False
autosummary_generate = True
toc_object_entries_show_parents = "hide"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
smartquotes_action = "qe"  # two hyphens start an option
suppress_warnings = ["config.cache"]  # the gallery's settings contain functions

html_theme = "furo"
html_math_renderer = "mathml"
html_title = "evencover"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True


def quiet(gallery: dict, name: str) -> None:
    """Start each tutorial with plain plots and short warnings."""
    import matplotlib.pyplot as plt

    plt.rcdefaults()
    plt.rcParams.update({"figure.figsize": (7, 3.8), "axes.spines.right": False})
    plt.rcParams.update({"axes.spines.top": False, "figure.constrained_layout.use": True})
    # Gray ink without a background is readable on light and on dark pages.
    plt.rcParams.update(dict.fromkeys(("figure.facecolor", "axes.facecolor"), "none"))
    plt.rcParams.update({"savefig.facecolor": "none", "legend.facecolor": "none"})
    inks = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    plt.rcParams.update(dict.fromkeys(inks, "#7a7f85"))
    warnings.formatwarning = lambda message, *_, **__: fill(f"note: {message}", 88) + "\n"
    warnings.simplefilter("always", EvencoverWarning)


def give_examples_a_heading(
    app: object, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Add a heading to an example below the sections of a docstring."""
    has_sections = any(line and not line.strip("-") for line in lines)
    starts = [index for index, line in enumerate(lines) if line.startswith(">>>")]
    if has_sections and starts and "Examples" not in lines:
        lines[starts[0] : starts[0]] = ["Examples", "--------"]


def parameters_of(docstring: str) -> dict[str, list[str]]:
    """Return the lines that describe each parameter, by name."""
    entries: dict[str, list[str]] = {}
    lines = cleandoc(docstring).splitlines()
    for line in lines[lines.index("Parameters") + 2 :]:
        if not line.strip():
            break
        if not line.startswith(" "):
            name = line
            entries[name] = []
        else:
            entries[name].append(line)
    return entries


def list_every_parameter(
    app: object, what: str, title: str, thing: object, options: object, lines: list[str]
) -> None:
    """Describe the parameters that all predictors share on the page of each predictor."""
    shared = "As for every predictor"
    places = [index for index, line in enumerate(lines) if line.strip().startswith(shared)]
    if what != "class" or not places:
        return
    place = places[0]
    remark = lines[place].replace(shared, "").strip(" .;")
    listed = [
        text
        for name, description in parameters_of(BasePredictor.__doc__ or "").items()
        if name not in lines
        for text in (name, *description)
    ]
    lines[place - 1 : place + 1] = [*listed, *([f"    {remark}."] if remark else [])]


def leave_out_links_back(
    app: object, page: str, template: str, context: dict, doctree: object
) -> None:
    """Remove links from the source to the reference, which has names by import, not by module."""
    if page.startswith("_modules/"):
        context["body"] = re.sub(r'<a class="viewcode-back".*?</a>', "", context["body"])


def setup(app: object) -> None:
    """Connect to docstrings before numpydoc reads them, and to the pages with the source."""
    app.connect("autodoc-process-docstring", list_every_parameter, priority=300)
    app.connect("autodoc-process-docstring", give_examples_a_heading, priority=400)
    app.connect("html-page-context", leave_out_links_back)


sphinx_gallery_conf = {
    "examples_dirs": [str(HERE.parent / "examples" / name) for name in GALLERIES],
    "gallery_dirs": list(GALLERIES),
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "reset_modules": (quiet,),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 10_000,
    "capture_repr": ("_repr_html_", "__repr__"),
    "ignore_repr_types": r"matplotlib\.|tuple|list",
    "plot_gallery": "True",
}
