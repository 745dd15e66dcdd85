"""The image of the state, as snapshots hold it: its layout, its writer and its reader."""
