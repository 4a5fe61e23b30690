"""What the theme is told of this book: nothing from a network, no button to nowhere, and where errors are reported.

The link at the foot of a page opens the form for errata (`.github/ISSUE_TEMPLATE/erratum.yml`) with the page's name in
it. While `repository: url` in _config.yml is empty it leads to the page of errata, which says where the form is.
"""

from errata import form

PAGE = "book/errata"


def no_buttons_to_nowhere(app, config):
    """Without the repository's address (`repository: url` in _config.yml) Colab and Binder have nothing to open."""
    if not config.html_theme_options.get("repository_url"):
        config.html_theme_options.pop("launch_buttons", None)


def drop_thebe(app, pagename, templatename, context, doctree):
    """Remove Thebe, which runs cells on a remote server: we have none, and Jupyter Book declares it twice a page."""
    context["script_files"] = [
        script
        for script in context.get("script_files", [])
        if "thebe" not in str(script.filename or "") and "thebe" not in (script.attributes.get("body") or "").lower()
    ]


def ask(app, pagename, templatename, context, doctree):
    """What `report-error.html` needs: the form, or the page that says where it is."""
    address = app.config.html_theme_options.get("repository_url")
    here = context["pathto"](PAGE).rstrip("#") + "#how-to-report-one"  # of a page to itself it is "#"
    context["report_error"] = form(address, pagename) if address else here


def setup(app):
    app.connect("config-inited", no_buttons_to_nowhere)
    app.connect("html-page-context", ask)
    # Late, after every extension has added its scripts.
    app.connect("html-page-context", drop_thebe, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
