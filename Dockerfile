# SPDX-License-Identifier: Apache-2.0
# The managed plugin's root file system (last stage; scripts/rootfs exports it) and the image of the demo.
# BASE comes from scripts/install/base-image. host/ is put into the context by scripts/rootfs: how this machine reaches PyPI.
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS hook
RUN apt-get update -q && apt-get install -q -y --no-install-recommends gcc libc6-dev make
COPY hook /src/hook
COPY porter /src/porter
COPY tests/fakes /src/tests/fakes
RUN make -C /src/hook && make -C /src/porter && make -C /src/tests/fakes
# Without debug information: the hook is copied into every container.
RUN mkdir -p /out/simulated \
    && cp /src/hook/build/libconvgpu*.so /src/porter/build/convgpu-porter /out/ \
    && cp /src/tests/fakes/build/libcuda.so.1 /src/tests/fakes/build/libnvidia-ml.so.1 /out/simulated/ \
    && strip --strip-debug /out/*.so /out/convgpu-porter /out/simulated/*.so.1

FROM ${BASE} AS demo
COPY --from=hook /src/tests/fakes/build/gpu-hold /usr/local/bin/gpu-hold

FROM ${BASE} AS python
RUN apt-get update -q && apt-get install -q -y --no-install-recommends python3

FROM python AS wheel
RUN apt-get install -q -y --no-install-recommends python3-venv
COPY host /host
ENV PIP_CONFIG_FILE=/host/pip.conf PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
COPY requirements.txt requirements-dev.txt /src/
RUN python3 -m venv /build && /build/bin/pip install -c /src/requirements-dev.txt hatchling
RUN python3 -m venv /opt/convgpu && /opt/convgpu/bin/pip install --no-deps -r /src/requirements.txt
COPY pyproject.toml README.md LICENSE /src/
COPY plugin /src/plugin
COPY scheduler /src/scheduler
COPY deploy/slurm /src/deploy/slurm
COPY scripts/release/build_hook.py scripts/release/metadata_hook.py /src/scripts/release/
RUN /build/bin/pip wheel --no-build-isolation --no-deps -w /wheels /src \
    && /opt/convgpu/bin/pip install --no-deps --no-index /wheels/*.whl \
    && /opt/convgpu/bin/pip uninstall -q -y setuptools pip

FROM python
# Nothing is installed into a running plugin: what only installs or documents goes.
RUN rm -rf /var/lib/apt /var/lib/dpkg /var/cache /var/log/* /usr/lib/apt /usr/bin/perl* /usr/lib/*-linux-gnu/perl-base \
        /usr/share/doc /usr/share/man /usr/share/info /usr/share/locale /usr/share/zoneinfo /usr/share/perl* \
        /usr/lib/*-linux-gnu/gconv /usr/lib/python3.*/ensurepip /usr/lib/python3.*/lib2to3 \
    && mkdir -p /var/lib/convgpu /host/usr /host/run /host/etc
COPY --from=wheel /opt/convgpu /opt/convgpu
COPY --from=hook /out /usr/lib/convgpu
