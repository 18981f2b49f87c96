"""``python -m hashring``, and the file that ``spark-submit`` runs: the command ``hashring``."""

from hashring.cli import main

if __name__ == "__main__":
    main(prog_name="hashring")
