"""Pages for people, as single HTML files: no script, nothing fetched, every value escaped. Needs jinja2.

`render.py` fills in a template of `templates/`; `base.html` there has head, style and print rules for every page.
"""
