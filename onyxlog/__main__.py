"""`python -m onyxlog` is `onyxlog`."""

from onyxlog.main import main

if __name__ == "__main__":
    main(prog_name="onyxlog")
