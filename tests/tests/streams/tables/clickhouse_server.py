"""The HTTP interface of ClickHouse before its real engine, which PyPI has as a library: there is no package of a server.

clickhouse_server.py PORT DIRECTORY AUTHORITY CERTIFICATE KEY: keeps the data in DIRECTORY, and speaks TLS with clients that show a certificate.
One request at a time; what the engine says is answered as the server would.
"""

import base64
import os
import re
import ssl
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qsl, urlsplit

from chdb.session import Session

PORT, DIRECTORY, AUTHORITY, CERTIFICATE, KEY = sys.argv[1:]
# Parameters that are no settings of the engine.
OTHERS = {"query", "query_id", "default_format", "wait_end_of_query"}
ALLOWED = "Basic " + base64.b64encode(b"archive:hunter2").decode()
session = Session(os.path.join(DIRECTORY, "engine"))


class Handler(BaseHTTPRequestHandler):
    timeout = 20

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        parameters = dict(parse_qsl(urlsplit(self.path).query))
        if self.headers["Authorization"] != ALLOWED:
            return self.answer(403, b"Code: 516. DB::Exception: archive: Authentication failed. (AUTHENTICATION_FAILED)")
        try:
            self.answer(200, self.run(parameters, body))
        except Exception as error:
            self.answer(500, str(error).encode())

    def run(self, parameters, body):
        settings = [f"{name} = '{value}'" for name, value in parameters.items() if name not in OTHERS]
        clause = f"SETTINGS {', '.join(settings)}" if settings else ""
        sql = parameters.get("query")
        if sql is None:
            sql = f"{body.decode()} {clause}"
        else:
            # The engine reads rows from a file, as the server does from the body.
            path = os.path.join(DIRECTORY, "rows")
            with open(path, "wb") as file:
                file.write(body)
            sql = sql.replace(" FORMAT ", f" FROM INFILE '{path}' {clause} FORMAT ", 1)
        return session.query(sql, parameters.get("default_format", "TabSeparated")).bytes()

    def answer(self, status, body):
        self.send_response(status)
        code = re.match(rb"Code: (\d+)", body) if status != 200 else None
        if code:
            self.send_header("X-ClickHouse-Exception-Code", code[1].decode())
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(HTTPServer):
    request_queue_size = 64

    def handle_error(self, *_):
        """A client that was killed is no event."""


server = Server(("127.0.0.1", int(PORT)), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(CERTIFICATE, KEY)
context.load_verify_locations(AUTHORITY)
context.verify_mode = ssl.CERT_REQUIRED
# The handshake is the first read, so that a connection without one keeps others waiting for a time only.
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
server.serve_forever()
