"""Values and wire forms that clients and servers of zraft share. This package depends on neither."""

__version__ = "0.1.0"
