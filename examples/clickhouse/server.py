"""The HTTP interface of ClickHouse before its engine, for tries and for tests: PyPI has the engine as `chdb`, no package has the server.

server.py PORT DIRECTORY [--tls AUTHORITY CERTIFICATE KEY] [--access FILE]: listens on 127.0.0.1 and keeps the data in DIRECTORY. With --tls it
speaks TLS with clients that show a certificate, with --access it asks for the USER:PASSWORD in FILE. It serves one request at a time, and
answers like the server.
"""

import argparse
import base64
import os
import re
import ssl
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qsl, urlsplit

from chdb.session import Session

parser = argparse.ArgumentParser()
parser.add_argument("port", type=int)
parser.add_argument("directory")
parser.add_argument("--tls", nargs=3, metavar=("AUTHORITY", "CERTIFICATE", "KEY"))
parser.add_argument("--access", type=argparse.FileType("rb"))
arguments = parser.parse_args()
# Parameters that the engine does not take.
OTHERS = {"query", "query_id", "default_format", "wait_end_of_query"}
ALLOWED = arguments.access and "Basic " + base64.b64encode(arguments.access.read().strip()).decode()
session = Session(os.path.join(arguments.directory, "engine"))


class Handler(BaseHTTPRequestHandler):
    timeout = 20

    def do_GET(self):
        self.answer(200, b"Ok.\n")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        parameters = dict(parse_qsl(urlsplit(self.path).query))
        if ALLOWED and self.headers["Authorization"] != ALLOWED:
            return self.answer(403, b"Code: 516. DB::Exception: Authentication failed. (AUTHENTICATION_FAILED)")
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
            path = os.path.join(arguments.directory, "rows")
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


server = Server(("127.0.0.1", arguments.port), Handler)
if arguments.tls:
    authority, certificate, key = arguments.tls
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(authority)
    context.verify_mode = ssl.CERT_REQUIRED
    # The first read does the handshake, so a connection without one delays others only until the timeout.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
server.serve_forever()
