# The image starts a zraft server, which is configured by ZRAFT_… (docs/reference/configuration.md) or by the ZOO_… variables of ZooKeeper's
# official image (docs/how-to/migration.md). The commands onyxlog and zraft-bench are in it as well:
#
#   docker build -t zraft .
#   docker run -p 2181:2181 -v zraft:/data zraft
#   docker compose up            # three servers, and peers if wanted: compose.yaml
#
# The first stage has what building takes; only its virtual environment goes on.
FROM python:3.11-slim AS build
# With "bench", plots and `zraft-bench local --docker` work in the image, too.
ARG EXTRAS=""
WORKDIR /src
RUN python -m venv /opt/zraft
# What is copied must be enough to build: `.ci/run` builds its wheel from exactly these files.
COPY setup.cfg pyproject.toml README.md LICENSE ./
COPY zraft zraft
COPY onyxlog onyxlog
COPY client client
COPY bench bench
RUN /opt/zraft/bin/pip install --no-cache-dir --disable-pip-version-check ./client ".${EXTRAS:+[$EXTRAS]}"
RUN /opt/zraft/bin/python -m compileall -q /opt/zraft/lib

FROM python:3.11-slim
COPY --from=build /opt/zraft /opt/zraft
# A number, not a name: a cluster's policy can see that it is not root. The directories are its own, and so are volumes put there.
RUN mkdir -p /data /keys /jobs /results && chown 10001:10001 /data /keys /jobs /results && chmod 700 /data /keys
USER 10001:10001
WORKDIR /data
# The ZOO_ name, because a ZRAFT_ one would win over what a user of ZooKeeper's image sets.
ENV PATH=/opt/zraft/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HOME=/data \
    LOGNAME=zraft \
    ZOO_DATA_DIR=/data \
    HEALTH_ADDRESS=127.0.0.1:2181
VOLUME /data
# Clients by TCP, other servers by UDP; 8080 for the admin pages if ZRAFT_ADMIN=0.0.0.0:8080.
EXPOSE 2181/tcp 2181/udp 8080/tcp
# Does the loop that serves clients turn? Not whether there is a quorum: restarting a server does not bring one.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["/opt/zraft/bin/python", "-c", "import os; from zraft_core.address import parse_address; from zraft.cli.status import ask; raise SystemExit(ask(parse_address(os.environ['HEALTH_ADDRESS'], 'HEALTH_ADDRESS'), 'ruok', 4.0) != 'imok')"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["/opt/zraft/bin/zraft"]
CMD ["serve"]
