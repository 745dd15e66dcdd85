"""This package is what clients and servers of zraft share. It depends on neither."""

__version__ = "0.1.0"
