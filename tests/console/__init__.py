"""The web console in a real browser, before real servers."""
