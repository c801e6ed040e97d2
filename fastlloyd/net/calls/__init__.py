"""Frames as calls of a framework that joins the parties already."""
