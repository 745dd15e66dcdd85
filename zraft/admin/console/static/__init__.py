"""The files that a browser gets: one page, its style and its modules. They are served as they are."""
