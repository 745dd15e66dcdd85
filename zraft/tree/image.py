"""The image of the state, as snapshots hold it: one name for its writer and its reader."""

from __future__ import annotations

from zraft.tree.image_reader import ImageReader, ImageState
from zraft.tree.image_writer import ImageWriter

__all__ = ["ImageReader", "ImageState", "ImageWriter"]
