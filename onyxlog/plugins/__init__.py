"""Plugins by which segments come and go, one module for each medium.

`onyxlog.plugins.plugin` says what a plugin is.
"""
