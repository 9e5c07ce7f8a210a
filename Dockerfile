# The image that Docker and Kubernetes work pools run flows in:
#   docker build -t datamask .
# The index's torch brings CUDA. For a small image without it, name PyTorch's own CPU index:
#   docker build -t datamask --build-arg PIP_EXTRA_INDEX_URL=… .
FROM python:3.12-slim-bookworm

ARG PIP_EXTRA_INDEX_URL
ENV DO_NOT_TRACK=1 \
    PREFECT_SERVER_ANALYTICS_ENABLED=false \
    PYTHONUNBUFFERED=1

WORKDIR /app
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY datamask datamask
COPY tasks tasks
COPY flows flows
COPY deployments deployments
RUN pip install --no-cache-dir --constraint constraints.txt '.[all]' \
    && useradd --create-home --uid 10001 datamask \
    && mkdir /data && chown 10001 /data
# the inner loops, compiled once; each user of a container begins with a copy
RUN python -m datamask.precompile
USER 10001
