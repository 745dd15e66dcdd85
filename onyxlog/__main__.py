"""`python -m onyxlog`: the command `onyxlog`."""

from onyxlog.main import main

main()
