# One image for `migrate`, `api` and `worker`; the command of the container selects the role.
# The build stage has the C compiler for the rules (docs/decisions/0023).
# Images are pinned by digest, here and in docker-compose.yml: CONTRIBUTING.md says how to renew them.
FROM python:3.13.15-trixie@sha256:82c46c08c991d3d3ff10476ac5e386c2c28f27bbd3985a02c5e39fe99ab272eb AS build
WORKDIR /src
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# Two environments: /opt/build compiles the wheel; /opt/cardledger, which the image copies, holds the
# runtime lock and the wheel only, without pip.
RUN python -m venv /opt/build && python -m venv --without-pip /opt/cardledger
# Dependencies first: they change less often than the code.
COPY constraints.txt constraints-dev.txt ./
RUN pip --python /opt/cardledger/bin/python install --require-hashes -r constraints.txt
RUN /opt/build/bin/pip install --require-hashes -r constraints-dev.txt
COPY . .
RUN CARDLEDGER_COMPILE=1 /opt/build/bin/pip wheel --no-build-isolation --no-deps --wheel-dir dist . \
 && pip --python /opt/cardledger/bin/python install --no-deps dist/*.whl

FROM python:3.13.15-slim-trixie@sha256:9d2e5553305c7c7b0097999bb17187c69b921ccd6bc9d40e4bb5ebe652c00285
RUN useradd --system --uid 10001 --home-dir /nonexistent --shell /usr/sbin/nologin cardledger
COPY --from=build /opt/cardledger /opt/cardledger
ENV PATH=/opt/cardledger/bin:$PATH PYTHONUNBUFFERED=1 CARDLEDGER_LOG_FORMAT=json
USER cardledger
WORKDIR /tmp
EXPOSE 8000
# Exec form: cardledger is PID 1 and receives the SIGTERM of `docker stop`.
ENTRYPOINT ["cardledger"]
CMD ["--help"]
