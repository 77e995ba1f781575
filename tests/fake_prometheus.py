"""A Prometheus over loopback that knows a few containers, and what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

__all__ = ["FakePrometheus"]


class FakePrometheus:
    """``containers``: (namespace, pod, container) -> (cores, bytes), the same all the time. ``most``: an answer with
    more samples is refused. ``loads``: query -> value of one series by the seconds since 1970. ``warnings``: said with
    each answer."""

    def __init__(
        self,
        containers: dict[tuple[str, str, str], tuple[float, float]],
        *,
        most: int = 1 << 30,
        loads: dict[str, Callable[[float], float]] | None = None,
        warnings: list[str] | None = None,
    ) -> None:
        self.containers = containers
        self.most = most
        self.loads = loads or {}
        self.warnings = warnings
        self.requests: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self._lock = threading.Lock()

    def answer(self, path: str, parameters: dict[str, str], headers: dict[str, str]) -> tuple[int, Any]:
        """Status and body: plain data, or bytes as they are."""
        with self._lock:
            self.requests.append({"path": path, **parameters})
            self.headers.append(headers)
        if path.endswith("/query"):
            value = [float(parameters["time"]), str(len(self.containers))]
            return 200, {
                "status": "success",
                "data": {"resultType": "vector", "result": [{"metric": {}, "value": value}]},
            }
        start, end, step = (float(parameters[name]) for name in ("start", "end", "step"))
        times = [start + i * step for i in range(int((end - start) // step) + 1)]
        if len(times) > 11_000 or len(times) * len(self.containers) > self.most:
            text = "query processing would load too many samples into memory in query execution"
            return 422, {"status": "error", "errorType": "execution", "error": text}
        if (load := self.loads.get(parameters["query"])) is not None:
            series = {"metric": {}, "values": [[time, str(load(time))] for time in times]}
            return 200, {"status": "success", "data": {"resultType": "matrix", "result": [series]}}
        number = 1 if "working_set" in parameters["query"] else 0
        result = [
            {
                "metric": dict(zip(("namespace", "pod", "container"), key, strict=True)),
                "values": [[time, str(values[number])] for time in times],
            }
            for key, values in self.containers.items()
        ]
        return 200, {"status": "success", "data": {"resultType": "matrix", "result": result}}

    @contextmanager
    def served(self) -> Iterator[str]:
        """Its URL."""
        answer, warnings = self.answer, self.warnings

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                parameters = {name: values[0] for name, values in parse_qs(body).items()}
                code, result = answer(self.path, parameters, dict(self.headers))
                if warnings is not None and code == 200:
                    result["warnings"] = warnings
                data = result if isinstance(result, bytes) else json.dumps(result).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
