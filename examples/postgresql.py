"""A PostgreSQL server of one's own, for the examples and their tests.

It listens on a socket in a temporary directory only, and is gone with its block. PostgreSQL
refuses to run as root, so under root it runs as *nobody*.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOBODY = 65534


class PostgreSQL:
    """A server: ``with PostgreSQL() as server: psycopg.connect(server.url)``."""

    def __enter__(self) -> PostgreSQL:
        self.directory = Path(tempfile.mkdtemp(prefix="postgresql-"))
        try:
            programs = self._programs()
            if os.geteuid() == 0:
                shutil.chown(self.directory, NOBODY, NOBODY)
            data = str(self.directory / "data")
            self._run(
                programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "-N"
            )
            settings = f"-F -k {self.directory} -c listen_addresses="
            log = str(self.directory / "log")
            self._run(programs / "pg_ctl", "-D", data, "-l", log, "-o", settings, "-w", "start")
        except BaseException:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise
        self.url = f"postgresql://postgres@/postgres?host={self.directory}"
        self._stop = (programs / "pg_ctl", "-D", data, "-m", "immediate", "stop")
        return self

    def __exit__(self, *_: object) -> None:
        self._run(*self._stop)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _programs(self) -> Path:
        found = subprocess.run(
            [ROOT / "scripts" / "postgresql"], stdout=subprocess.PIPE, text=True, check=False
        )
        if found.returncode:
            raise FileNotFoundError("no PostgreSQL: scripts/postgresql says why")
        programs = Path(found.stdout.strip())
        tree = ROOT / ".servers" / "postgresql"
        if programs.is_relative_to(tree):
            # A copy, since "nobody" may not be able to read the checkout.
            copy = self.directory / "server"
            shutil.copytree(tree, copy, symlinks=True)
            self.libraries = ":".join(sorted({str(p.parent) for p in copy.rglob("lib*.so*")}))
            return copy / programs.relative_to(tree)
        self.libraries = ""
        return programs

    def _run(self, *command: str | Path) -> None:
        user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        done = subprocess.run(
            command,
            cwd=self.directory,
            env={"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": self.libraries, "LC_ALL": "C"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            **user,
        )
        if done.returncode:
            raise RuntimeError(f"{Path(command[0]).name}: {done.stderr}")
