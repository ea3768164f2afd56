"""Sphinx configuration."""

from importlib.metadata import version as installed

project = "discreet"
author = "The discreet developers"
copyright = author
version = release = installed("discreet")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_static_path = ["_static"]
html_css_files = ["questions.css"]
html_theme = "pydata_sphinx_theme"
html_title = "discreet"
html_theme_options = {
    "show_prev_next": False,
    # Questions and answers stand side by side, and need the room.
    "secondary_sidebar_items": {"**": ["page-toc"], "howto/cookbook": []},
}
html_show_sourcelink = False
napoleon_custom_sections = [("Privacy", "notes_style"), ("Reference", "notes_style")]
napoleon_use_rtype = False
napoleon_use_ivar = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"
myst_heading_anchors = 3
