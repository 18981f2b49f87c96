"""``python -m hashring``, and the file that ``spark-submit`` runs: the command ``hashring``."""

import sys

try:
    from hashring.cli import main
except KeyboardInterrupt:  # while its modules are being loaded
    sys.exit(130)

if __name__ == "__main__":
    main(prog_name="hashring")
