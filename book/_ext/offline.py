"""Keep every page of the book free of addresses that a browser would have to fetch from a network."""


def drop_thebe(app, pagename, templatename, context, doctree):
    """Remove Thebe, which runs cells on a remote server: we have none, and Jupyter Book declares it twice a page."""
    context["script_files"] = [
        script
        for script in context.get("script_files", [])
        if "thebe" not in str(script.filename or "") and "thebe" not in (script.attributes.get("body") or "").lower()
    ]


def setup(app):
    # Late, after every extension has added its scripts.
    app.connect("html-page-context", drop_thebe, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
