# `cfs serve` as a container image. The Debian package is built first, on this machine: npm run package
#
#   docker build -t cfs-serve .
#   docker run -d --name cfs --read-only --tmpfs /tmp -v cfs-data:/data -p 127.0.0.1:8080:8080 cfs-serve --insecure --public-origin https://files.example.com
#
# docs/containers.md describes accounts, secrets and TLS.
FROM debian:12-slim

# Set by the builder: amd64 or arm64.
ARG TARGETARCH=amd64
COPY dist-packages/cfs-mount_*_${TARGETARCH}.deb /tmp/
RUN apt-get update \
    && apt-get install -y --no-install-recommends /tmp/cfs-mount_*.deb \
    && rm -rf /tmp/*.deb /var/lib/apt/lists/* \
    && install -d -o 10001 -g 10001 -m 700 /data
COPY packaging/container/health.mjs /usr/local/lib/cfs-mount/health.mjs

USER 10001:10001
ENV HOME=/data
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=10s CMD ["/usr/lib/cfs-mount/current/bin/node", "/usr/local/lib/cfs-mount/health.mjs"]
ENTRYPOINT ["/usr/bin/cfs", "serve", "--data", "/data", "--listen", "0.0.0.0:8080"]
