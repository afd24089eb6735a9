"""nginx before several Dynamo frontends: one address for clients, and the same frontend for all requests of a session.

Facts: nginx 1.19.5 or newer (`-e`); its documentation of the core, http, upstream and proxy modules.
"""

from __future__ import annotations

from collections.abc import Sequence

from srtctl.frontends.targets import RouterCommand
from srtctl.recipe.model import Frontend
from srtctl.references import bundle_file

NGINX = "nginx"
FILE = "nginx.conf"

OPEN_FILES = 1048576  # what v1 asks for
CONNECTIONS = 16384  # of one worker process, clients and frontends together
#: Where nginx would write below /var, whatever it is used for: below its prefix instead.
_TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def nginx(settings: Frontend, port: int, servers: Sequence[tuple[str, str]]) -> RouterCommand:
    """nginx on `port` before `servers`, each a name and `address:port`; it writes below its step's scratch folder alone.

    A request is sent to another frontend only if the first could not be reached at all: nginx does not repeat a POST
    that it has sent. No frontend is taken out for its errors, because the end of one ends the run.
    """
    text = "\n".join((*_process(settings), "http {", *_indented(_http(settings, port, servers)), "}", ""))
    return RouterCommand((NGINX, "-p", "${SCRATCH}", "-e", "stderr", "-c", bundle_file(FILE)), {FILE: text})


def _process(settings: Frontend) -> list[str]:
    raised = [f"worker_rlimit_nofile {OPEN_FILES};"] if settings.nginx_raise_ulimit else []
    return [
        "daemon off;",
        "user root root; # counts for root alone: stay who started it, also where a container has no other user",
        "pid nginx.pid; # this and the folders below: in the prefix, which is the step's scratch folder",
        "error_log stderr warn;",
        "worker_processes auto;",
        *raised,
        f"events {{ worker_connections {CONNECTIONS}; }}",
    ]


def _http(settings: Frontend, port: int, servers: Sequence[tuple[str, str]]) -> list[str]:
    return [
        *(f"{name}_temp_path {name};" for name in _TEMPORARY),
        # Which frontend had which request; session is `-` where affinity is off or the client names none.
        "log_format requests '$time_iso8601 $remote_addr \"$request\" $status $request_time s $frontend session=$session';",
        "access_log /dev/stdout requests buffer=32k flush=1s;",
        "",
        "map $upstream_addr $frontend {",
        "  default $upstream_addr;",
        *(f'  "{server}" {name};' for name, server in servers),
        "}",
        *_session(settings),
        "",
        "upstream frontends {",
        "  zone frontends 1m; # all worker processes share what they know of the frontends",
        "  hash $session_or_request consistent;" if settings.nginx_session_affinity else "  least_conn;",
        *(f"  server {server} max_fails=0;" for _, server in servers),
        "  keepalive 256; # idle connections that a worker process keeps",
        "  keepalive_requests 1000000;",
        "  keepalive_timeout 60s; # shorter than a frontend's, or a request meets a connection that is being closed",
        "}",
        "",
        "server {",
        f"  listen 0.0.0.0:{port} backlog=4096;",
        "  keepalive_requests 1000000;",
        "  keepalive_timeout 600s;",
        "  client_max_body_size 0;",
        "  client_body_buffer_size 1m;",
        "  client_body_timeout 600s;",
        "  send_timeout 24h;",
        "  ignore_invalid_headers off;",
        "",
        "  location / {",
        "    proxy_pass http://frontends;",
        "    proxy_http_version 1.1;",
        '    proxy_set_header Connection "";',
        "    proxy_set_header Host $http_host;",
        "    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;",
        "    proxy_buffering off; # a token reaches the client when it comes",
        "    proxy_connect_timeout 10s;",
        "    proxy_read_timeout 24h; # a long prefill says nothing for minutes",
        "    proxy_send_timeout 24h;",
        "    proxy_socket_keepalive on;",
        "    proxy_next_upstream error timeout;",
        "  }",
        "}",
    ]


def _session(settings: Frontend) -> list[str]:
    """What the log calls the session, and what is hashed: the session, or something else for each request without."""
    if not settings.nginx_session_affinity:
        return ["map $remote_addr $session { default -; }"]
    header = f"$http_{settings.nginx_session_affinity_header.lower().replace('-', '_')}"
    return [
        f'map {header} $session {{ "" -; default {header}; }}',
        f'map {header} $session_or_request {{ "" $request_id; default {header}; }}',
    ]


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" if line else "" for line in lines]
