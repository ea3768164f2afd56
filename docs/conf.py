"""Sphinx configuration."""

from importlib.metadata import version as installed

project = "discreet"
author = "The discreet developers"
copyright = author
version = release = installed("discreet")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "pydata_sphinx_theme"
html_title = "discreet"
html_theme_options = {"show_prev_next": False, "secondary_sidebar_items": ["page-toc"]}
html_show_sourcelink = False
napoleon_custom_sections = [("Privacy", "notes_style"), ("Reference", "notes_style")]
napoleon_use_rtype = False
napoleon_use_ivar = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"
myst_heading_anchors = 3
