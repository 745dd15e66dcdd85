"""zraft beside other systems."""
