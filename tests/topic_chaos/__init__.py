"""Topics on real servers under faults: what programs wrote down and what every replica gave to read, judged from outside."""
