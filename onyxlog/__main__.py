"""Run the command `onyxlog` as `python -m onyxlog`."""

from onyxlog.main import main

if __name__ == "__main__":
    main(prog_name="onyxlog")
