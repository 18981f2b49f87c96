"""Scripts that fetch Debian's packages take no half of one for a whole, and do not meet.

Packages come from programs that stand in for apt-get and dpkg-deb: two packages, of which the first
has the programs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.conftest import ROOT, eventually

pytestmark = pytest.mark.one_server

APT = """#!/bin/sh
case "$*" in
*indextargets*) (. /etc/os-release; echo "http://nowhere $VERSION_CODENAME main") ;;
*" install "*)
    echo fetched >>"$FETCHED"
    for each; do
        case $each in Dir::Cache=*) (cd "${each#*=}/archives" && touch one.deb two.deb) ;; esac
    done
    ;;
*" download "*) touch one.deb two.deb ;;
esac
"""
DPKG = """#!/bin/sh
case $1 in -x) ;; *) exit 0 ;; esac
case $2 in */two.deb) eval "$BEFORE_THE_SECOND" ;; esac
case $2 in */one.deb) files=$FIRST ;; *) files=$SECOND ;; esac
for file in $files; do
    mkdir -p "$(dirname "$3/$file")"
    printf '#!/bin/sh\\n' >"$3/$file"
    chmod +x "$3/$file"
done
"""
POSTGRESQL = "usr/lib/postgresql/15/bin"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    for name in ("help", "debian", "postgresql", "browser", "servers"):
        shutil.copy2(ROOT / "scripts" / name, scripts / name)
    # The keys and the server of this machine are none of the test's.
    (tmp_path / "keys").touch()
    debian = (scripts / "debian").read_text()
    (scripts / "debian").write_text(
        debian.replace("/usr/share/keyrings/debian-archive-keyring.gpg", str(tmp_path / "keys"))
    )
    script = (scripts / "postgresql").read_text()
    (scripts / "postgresql").write_text(script.replace(" /usr/lib/postgresql/", " /nowhere/"))
    script = (scripts / "browser").read_text()
    (scripts / "browser").write_text(script.replace("|| works chromium", ""))
    (tmp_path / "bin").mkdir()
    for name, text in (("apt-get", APT), ("dpkg-deb", DPKG), ("ldd", "#!/bin/sh\n")):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def start(
    checkout: Path,
    before_the_second: str = "",
    script: str = "postgresql",
    first: str = f"{POSTGRESQL}/postgres",
    second: str = f"{POSTGRESQL}/initdb",
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [checkout / "scripts" / script],
        env={
            **os.environ,
            "PATH": f"{checkout / 'bin'}:{os.environ['PATH']}",
            "FETCHED": str(checkout / "fetched"),
            "BEFORE_THE_SECOND": before_the_second,
            "FIRST": first,
            "SECOND": second,
        },
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_fetch_that_was_killed_leaves_nothing_that_is_taken_for_a_server(
    checkout: Path,
) -> None:
    start(checkout, before_the_second="kill -9 $PPID; exit").communicate()
    found = start(checkout).communicate()[0].strip()
    assert sorted(path.name for path in Path(found).iterdir()) == ["initdb", "postgres"]
    assert [path.name for path in (checkout / ".servers").glob("p*")] == ["postgresql"]


@pytest.mark.parametrize(
    ("script", "folders", "programs"),
    [
        ("browser", ("chromium",), "usr/lib/chromium/chromium"),
        (
            "servers",
            ("redis", "valkey", "redis-8"),
            "usr/bin/redis-server usr/bin/valkey-server",
        ),
    ],
)
def test_a_fetch_that_was_killed_leaves_no_program_that_is_taken_for_a_whole(
    checkout: Path, script: str, folders: tuple[str, ...], programs: str
) -> None:
    def fetch(before_the_second: str = "") -> int:
        run = start(checkout, before_the_second, script, programs, "usr/share/other")
        run.communicate()
        return run.returncode

    assert fetch() == 0
    servers = checkout / ".servers"
    names = sorted(path.name for path in (servers / "bin").iterdir())
    assert len(names) == len(folders)
    # They do not start any more, so they are fetched again.
    for folder in folders:
        for program in programs.split():
            (servers / folder / program).unlink()
    assert fetch("kill -9 $PPID; exit") != 0
    for program in (servers / "bin").iterdir():
        assert subprocess.run([program, "--version"], check=False).returncode != 0
    assert fetch() == 0
    assert sorted(path.name for path in (servers / "bin").iterdir()) == names
    assert all((servers / folder / "usr/share/other").exists() for folder in folders)


def waits_or_ended(run: subprocess.Popen[str]) -> bool:
    if run.poll() is not None:
        return True
    with suppress(psutil.NoSuchProcess):  # its children come and go
        return any(child.name() == "flock" for child in psutil.Process(run.pid).children())
    return False


def test_of_two_fetches_at_once_the_second_takes_what_the_first_brought(checkout: Path) -> None:
    os.mkfifo(checkout / "wait")
    first = start(checkout, before_the_second=f"read line <{checkout / 'wait'}")
    with (checkout / "wait").open("w") as gate:  # opens when the first reads it
        second = start(checkout)
        eventually(partial(waits_or_ended, second), "the second waits, or has ended")
        assert second.poll() is None
        gate.write("go on\n")
    found = {process.communicate()[0] for process in (first, second)}
    assert found == {f"{checkout}/.servers/postgresql/usr/lib/postgresql/15/bin\n"}
    assert (checkout / "fetched").read_text() == "fetched\n"
