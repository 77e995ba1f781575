"""``python -m kscale``: runs the command line."""

from kscale.cli import main

if __name__ == "__main__":
    main()
