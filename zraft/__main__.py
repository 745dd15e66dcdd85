"""`python -m zraft` is `zraft`."""

from zraft.cli.main import main

if __name__ == "__main__":
    main(prog_name="zraft")
