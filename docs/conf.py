"""Sphinx configuration."""

from __future__ import annotations

import json
import os
import re
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.domains.python import PyObject

if TYPE_CHECKING:
    from sphinx.application import Sphinx

THEOREMS = Path(__file__).parent / "explanation" / "theorems"

project = "discreet"
author = "The discreet developers"
copyright = author
version = release = installed("discreet")
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
# Pages are Markdown; autosummary writes one reStructuredText page for each public name.
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
# The gallery is written anew by every build, from the scripts in docs/gallery.
exclude_patterns = ["_build", "gallery"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
html_static_path = ["_static"]
html_css_files = ["questions.css", "site.css"]
html_theme = "pydata_sphinx_theme"
html_title = f"discreet {version}"
# Previews of links need the address of the site; without it they have no picture.
html_baseurl = os.environ.get("DISCREET_DOCS_URL", "").rstrip("/")
html_context = {
    "description": "Let others learn from a table without giving its people away: noisy answers, private "
    "models, synthetic tables and tables with noise, paid from one budget and checked by anyone.",
    "html_baseurl": html_baseurl,
}
html_theme_options = {
    "show_prev_next": False,
    # Questions beside their answers need the room, and so do the programs and formulas of theorems.
    "secondary_sidebar_items": {"**": ["page-toc"], "howto/cookbook": []}
    | {f"explanation/theorems/{path.stem}": [] for path in THEOREMS.glob("*.md")},
}
# Other versions are the neighbors of this one's folder; DISCREET_DOCS_VERSIONS lists all, the newest first.
# The menu of versions needs the address of the site, so a site built without it has none.
VERSIONS = os.environ.get("DISCREET_DOCS_VERSIONS", version).split()
if html_baseurl:
    html_theme_options |= {
        "switcher": {"json_url": f"{html_baseurl}/_static/versions.json", "version_match": version},
        "check_switcher": False,
        "navbar_end": ["version-switcher", "theme-switcher", "navbar-icon-links"],
    }
html_show_sourcelink = False
napoleon_custom_sections = [("Privacy", "notes_style"), ("Reference", "notes_style")]
napoleon_use_rtype = False
napoleon_use_ivar = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"
toc_object_entries_show_parents = "hide"
myst_heading_anchors = 3
# Every script of the gallery runs at every build, and an error in one is an error of the build.
sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "examples",
    "filename_pattern": "plot_",
    "subsection_order": ["gallery/notebooks", "gallery/ways", "gallery/papers"],
    "within_subsection_order": "FileNameSortKey",
    "capture_repr": ("_repr_html_",),
    "image_srcset": ["2x"],
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1e9,
    "write_computation_times": False,
    "only_warn_on_example_error": True,  # a warning, which -W makes an error after all scripts have run
}
# "n_rows" in the shape of an array is taken for an attribute of that name, of which there are several.
suppress_warnings = ["ref.python"]
# Formulas become MathML, which browsers draw by themselves: no script is loaded from elsewhere.
html_math_renderer = "mathml"


def _write_formula(writer: Any, node: nodes.math) -> None:
    """Write a formula inside of a line."""
    writer.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def _write_display(writer: Any, node: nodes.math_block) -> None:
    """Write a formula on a line of its own."""
    writer.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>\n')
    raise nodes.SkipNode


def _link_pages(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Turn paths of pages in docstrings into links."""
    for i, line in enumerate(lines):
        # A list of theorems names the folder once: "docs/explanation/theorems/a.md, b.md".
        whole = line
        if ".md, " in line:
            whole = re.sub(r"(?<=, )(?=[\w.-]+\.md\b)", "docs/explanation/theorems/", line)
        lines[i] = re.sub(r"(?:``)?\bdocs/([\w/.-]+?)\.md\b(?:``)?", r":doc:`/\1`", whole)


def _write_versions(app: Sphinx, problem: Exception | None) -> None:
    """Write the list that the menu of versions reads, the newest first."""
    if problem is None and html_baseurl:
        site = html_baseurl.rpartition("/")[0]
        listed = [{"version": name, "url": f"{site}/{name}/"} for name in VERSIONS]
        Path(app.outdir, "_static", "versions.json").write_text(json.dumps(listed), encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Register the renderer of formulas, links from docstrings, and the list of versions."""
    app.connect("build-finished", _write_versions)
    app.connect("autodoc-process-docstring", _link_pages)
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"
    app.add_html_math_renderer("mathml", (_write_formula, None), (_write_display, None))
