# The kit in a container: docs/containers.md. The kit lies in /srv/pi2zero, a learner's own copy of the notebooks in /home/learner.
FROM debian:12-slim AS base
ENV LANG=C.UTF-8
COPY .binder/apt.txt /tmp/apt.txt
RUN apt-get update \
    && xargs -a /tmp/apt.txt apt-get install -y --no-install-recommends python3.11 python3.11-venv python3.11-dev \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home --uid 1000 learner && mkdir /srv/pi2zero && chown learner /srv/pi2zero

FROM base
# cpu, cu126, ...: which build of torch. Not given: the set-up chooses; while an image is built there is no GPU.
ARG UV_TORCH_BACKEND
COPY --chown=learner . /srv/pi2zero
USER learner
WORKDIR /srv/pi2zero
RUN make set-up \
    && .venv/bin/python -m pip install -q --no-deps --require-hashes -r hub/requirements.lock \
    && .venv/bin/python -m pi2zero build --wait \
    && rm -rf ~/.cache
EXPOSE 8888
CMD [".venv/bin/python", "tools/lab.py", "--own-copy", "--ServerApp.ip=0.0.0.0"]
