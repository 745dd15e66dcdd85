"""Traces of a group in the form that ShiViz draws: who said what to whom, and what could have been known when."""
