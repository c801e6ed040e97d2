"""Figures of a result, as marks in points: the page and all forms of a file draw the same ones.

`drawing.py` has the marks and their SVG, `paint.py` their PNG and PDF; `released.py` what figures may show; `heat.py`,
`profile.py` and `plane.py` lay them out.
"""
