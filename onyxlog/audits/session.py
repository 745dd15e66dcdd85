"""A Spark session in which audits run: on this machine unless a master is named, quiet, with the format `zraft` known.

On a cluster our Python packages are shipped to the workers. What they need (msgpack, attrs, crc32c,
zstandard, pyarrow, pandas) has to be installed there, and the data has to be at the same path everywhere.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attrs import Factory, frozen

from onyxlog.audits.errors import AuditError
from onyxlog.audits.java import find_java
from onyxlog.audits.source import register
from zraft.program.reaching import nobody_listens
from zraft_core.address import parse_address

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SessionSettings", "close_session", "open_session"]

SHIPPED: Final = ("onyxlog", "zraft", "zraft_client", "zraft_core")
LOCAL: Final = "127.0.0.1"
PROGRESS_INTERVAL_S: Final = 0.25
_SCRATCH: Final = "spark.zraft.scratch"
"""The setting in which a session notes its own directory, so that it can be removed at the end."""
STOP_TIMEOUT_S: Final = 10.0

_LOGGING: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = spark %p %c{1}: %m%n
# What a task failed with comes as the exception of whoever asked; here it would be told three times more.
logger.tasks.name = org.apache.spark
logger.tasks.level = off
"""


@frozen
class SessionSettings:
    """Settings of a session.

    Attributes:
        master: as Spark names it: `local[*]`, `local[2]`, `spark://HOST:PORT`.
        memory: of the JVM (and of each executor), such as `2g`; Python's tasks are beside it.
        partitions: of shuffles.
        brief: whether the session lasts for less than a minute: the JVM compiles quickly then, and not well.
        more: settings of Spark's own, passed unchanged.
    """

    master: str = "local[*]"
    memory: str = "2g"
    partitions: int = 8
    brief: bool = False
    name: str = "zraft audit"
    more: Mapping[str, str] = Factory(dict)


_LOCAL: Final = re.compile(r"local(\[(\*|[1-9][0-9]*)(,\s*[0-9]+)?\])?")
_STANDALONE: Final = "spark://"
_OTHERS: Final = ("yarn", "k8s://", "local-cluster[")
_MEMORY: Final = re.compile(r"[1-9][0-9]*[kmgtKMGT]")


def check_settings(settings: SessionSettings) -> None:
    """Check what can be checked without Spark, which takes long to start and to give up.

    Raises:
        AuditError: a setting cannot be used, or nobody listens where the master should be.
    """
    if not _MEMORY.fullmatch(settings.memory):
        raise AuditError(f"--memory: found {settings.memory!r}, expected a size such as 2g or 800m")
    master = settings.master
    if master.startswith(_STANDALONE):
        hosts = [parse_address(part, "--master") for part in master.removeprefix(_STANDALONE).split(",")]
        if (reasons := nobody_listens(hosts)) is not None:
            raise AuditError(f"--master: {reasons}; start the master of Spark there, or name another")
    elif not (_LOCAL.fullmatch(master) or master.startswith(_OTHERS)):
        raise AuditError(f"--master: found {master!r}, expected local[CORES] or spark://HOST:PORT")


def open_session(settings: SessionSettings) -> SparkSession:
    """Open a session; stop it with `close_session`.

    Raises:
        AuditError: as `check_settings`; or Spark is not installed, there is no Java for it, or it does
            not start.
    """
    check_settings(settings)
    try:
        import pyspark
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise AuditError(
            f"audits need Spark: {error}; install it with `pip install 'zraft[audits]'`"
        ) from error
    java = find_java(os.environ)
    os.environ["JAVA_HOME"] = java.home
    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    local = settings.master.startswith("local")
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", LOCAL)
        # Tasks are processes of this machine, but begin in another directory, which matters in a checkout.
        ours = dict.fromkeys(str(folder.parent) for folder in _folders())
        os.environ["PYTHONPATH"] = os.pathsep.join([*ours, os.environ.get("PYTHONPATH", "")]).rstrip(
            os.pathsep
        )
    scratch = tempfile.mkdtemp(prefix="zraft-audit-")
    logging = Path(scratch, "log4j2.properties")
    logging.write_text(_LOGGING)
    options = java_options(settings, logging)
    found: dict[str, str] = {
        "spark.app.name": settings.name,
        "spark.master": settings.master,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": settings.memory,
        "spark.driver.extraJavaOptions": options,
        "spark.sql.shuffle.partitions": str(settings.partitions),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        _SCRATCH: scratch,
        "spark.log.level": "ERROR",
        # A busy machine may take longer than Spark's 15 s to start an interpreter.
        "spark.python.authenticate.socketTimeout": "120s",
    }
    if local:
        found |= {"spark.driver.host": LOCAL, "spark.driver.bindAddress": LOCAL}
    else:
        found["spark.executor.memory"] = settings.memory
    found |= settings.more
    builder = SparkSession.builder
    for key, value in found.items():
        builder = builder.config(key, value)
    try:
        with _quiet_start():
            spark: SparkSession = builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        shutil.rmtree(scratch, ignore_errors=True)
        lines = str(error).splitlines() or [type(error).__name__]
        why = next((line for line in lines if "Exception:" in line), lines[0]).strip(": ")
        raise AuditError(
            f"Spark did not start (--master {settings.master}, --memory {settings.memory}): {why}"
        ) from error
    if not local:
        spark.sparkContext.addPyFile(str(packed(Path(scratch))))
    register(spark)
    return spark


def java_options(settings: SessionSettings, logging: Path) -> str:
    """Return the options of the JVM, which logs as the file `logging` says."""
    configured = f"-Dlog4j2.configurationFile={logging.as_uri()}"
    # The second compiler would still be at work when a brief session ends.
    return f"{configured} -XX:TieredStopAtLevel=1" if settings.brief else configured


def packed(directory: Path) -> Path:
    """Return our packages as one archive that Python can import from.

    It needs the same minor version of Python, which Spark wants anyway.
    """
    archive = directory / "zraft_audits.zip"
    # They are compiled: importers from an archive could keep nothing that they compile, and would do it again
    # in every process.
    try:
        with zipfile.PyZipFile(str(archive), "w", zipfile.ZIP_DEFLATED) as compiled:
            for folder in _folders():
                compiled.writepy(str(folder))
    except PermissionError:  # compiling leaves its results beside the sources, which are somebody else's
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as plain:
            for folder in _folders():
                for path in sorted(folder.rglob("*.py")):
                    plain.write(path, path.relative_to(folder.parent))
    return archive


def _folders() -> list[Path]:
    """Return the folders of our packages."""
    found = []
    for name in SHIPPED:
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise AuditError(f"the package {name} cannot be found, and workers need it; install zraft anew")
        found.append(Path(next(iter(spec.submodule_search_locations))))
    return found


@contextmanager
def _quiet_start() -> Iterator[None]:
    """Keep the JVM's start-up lines aside, which say nothing to a user.

    The JVM inherits our stderr when it is launched. The lines are shown if the start fails, as they say why.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), 2)
        try:
            yield
        except BaseException:
            sys.stderr.flush()
            aside.seek(0)
            os.write(kept, aside.read()[-8_192:])
            raise
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)


@frozen
class Progress:
    """Progress of running jobs: tasks done, and all tasks of the stages that are known by now."""

    done: int
    total: int


class ProgressReporter:
    """Reporter, from a thread, of how far Spark's running stages are, until its context ends."""

    def __init__(self, spark: SparkSession, told: Callable[[Progress], Any]) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._told = told
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="audit progress", daemon=True)

    def __enter__(self) -> ProgressReporter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(STOP_TIMEOUT_S)

    def _run(self) -> None:
        while not self._stop.wait(PROGRESS_INTERVAL_S):
            done = total = 0
            for stage in self._tracker.getActiveStageIds():
                info = self._tracker.getStageInfo(stage)
                if info is not None:
                    done += info.numCompletedTasks
                    total += info.numTasks
            if total:
                self._told(Progress(done, total))


def close_session(spark: SparkSession) -> None:
    """Stop the session, and the JVM that it started."""
    gateway = spark.sparkContext._gateway
    scratch = spark.sparkContext.getConf().get(_SCRATCH)
    spark.stop()
    if scratch is not None:
        shutil.rmtree(scratch, ignore_errors=True)
    process = getattr(gateway, "proc", None)
    if process is None:
        return
    # The JVM ends when its stdin does; opening another session launches another.
    gateway.shutdown()
    process.stdin.close()
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    if process.poll() is None:
        process.terminate()
    from pyspark import SparkContext

    SparkContext._gateway = None
    SparkContext._jvm = None
