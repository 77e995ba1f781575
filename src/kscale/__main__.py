"""``python -m kscale``: runs the command line."""

from kscale.cli import run_as_program

if __name__ == "__main__":
    run_as_program()
