"""``python -m kscale``: runs the command line."""

from kscale.cli import run_process

if __name__ == "__main__":
    run_process()
