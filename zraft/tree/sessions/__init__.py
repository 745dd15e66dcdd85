"""Sessions, and what each of them keeps: as values."""
