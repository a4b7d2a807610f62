#!/usr/bin/env python3
"""Collects the windows of many nodes into an SQLite database, each exactly once.

    collector.py --database windows.sqlite --collector archive https://gw-1:9470 https://gw-2:9470 unix:/run/twinprobe/twinprobe.sock

Collects from every probe whose configuration names the collector (`window.collectors`). A window is acknowledged once it
is on disk; a collector that is killed in between gets it again and knows it by node, probe, instance and number. Needs Python
3.9 and nothing else. Start from a copy of this file.
"""

import argparse
import http.client
import json
import logging
import os
import socket
import sqlite3
import ssl
import threading
import time
import urllib.parse

SCHEMA = """
CREATE TABLE IF NOT EXISTS windows (
    id INTEGER PRIMARY KEY,
    node TEXT NOT NULL, probe TEXT NOT NULL, instance TEXT NOT NULL, seq INTEGER NOT NULL,
    "start" TEXT NOT NULL, "end" TEXT NOT NULL, duration_ns INTEGER,
    lost INTEGER NOT NULL,  -- windows that went before this one and that nobody has collected
    UNIQUE (node, probe, instance, seq)
);
CREATE TABLE IF NOT EXISTS numbers (
    window INTEGER NOT NULL REFERENCES windows (id),
    direction TEXT NOT NULL, metric TEXT NOT NULL,
    key TEXT,               -- JSON; NULL for values without a key
    field TEXT NOT NULL,    -- the path in the value, such as tcp.syn; empty if the value is a number
    value                   -- an integer, as text beyond 63 bits; a real number; or a text
);
CREATE INDEX IF NOT EXISTS numbers_by_window ON numbers (window);
CREATE VIEW IF NOT EXISTS readings AS
    SELECT node, probe, seq, "start", "end", direction, metric, key, field, value FROM numbers JOIN windows ON windows.id = window;
"""


class Gone(Exception):
    """There is no such probe or window."""


class Node:
    """The API of one daemon. Each thread has a connection of its own."""

    def __init__(self, url, token, context):
        self.url, self.token, self.context = url, token, context
        self.local = threading.local()

    def connect(self, timeout):
        if self.url.startswith("unix:"):
            connection = http.client.HTTPConnection("localhost", timeout=timeout)
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(timeout)
            connection.sock.connect(self.url[len("unix:"):])
            return connection
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme == "https":
            return http.client.HTTPSConnection(parts.hostname, parts.port or 443, timeout=timeout, context=self.context)
        return http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=timeout)

    def ask(self, method, path, query=None, timeout=60):
        """Sends a request; returns the answer's JSON. All requests of a collector can be repeated."""
        if getattr(self.local, "connection", None) is None:
            self.local.connection = self.connect(timeout)
        headers = {"Accept": "application/json"}
        if self.token:
            headers["Authorization"] = "Bearer " + self.token
        try:
            self.local.connection.request(method, path + ("?" + urllib.parse.urlencode(query) if query else ""), headers=headers)
            answer = self.local.connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException):
            self.close()
            raise
        if answer.status == 404:
            raise Gone(path)
        if answer.status >= 300:
            raise OSError(f"{method} {path}: {answer.status} {body[:300].decode(errors='replace')}")
        return json.loads(body) if body else None

    def close(self):
        connection, self.local.connection = getattr(self.local, "connection", None), None
        if connection:
            connection.close()


class Database:
    """The windows that are on disk."""

    def __init__(self, path):
        self.lock = threading.Lock()
        self.connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode = WAL")
        # A commit is on disk before the window is acknowledged, so a power failure loses nothing.
        self.connection.execute("PRAGMA synchronous = FULL")
        self.connection.executescript(SCHEMA)

    def add(self, document):
        """Stores a window in one transaction, unless it is there. Returns whether it was new."""
        window = document["window"]
        row = (document.get("node", ""), document["probe"], document.get("instance", ""), window["seq"], window["start"], window["end"],
               window.get("duration_ns"), window.get("lost_windows", 0))
        with self.lock:
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                cursor = self.connection.execute(
                    'INSERT OR IGNORE INTO windows (node, probe, instance, seq, "start", "end", duration_ns, lost)'
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
                if cursor.rowcount:
                    number = cursor.lastrowid
                    self.connection.executemany("INSERT INTO numbers VALUES (?, ?, ?, ?, ?, ?)",
                                                ((number, *reading) for reading in readings(document)))
                self.connection.execute("COMMIT")
                return cursor.rowcount > 0
            except BaseException:
                self.connection.execute("ROLLBACK")
                raise


def readings(document):
    """Returns direction, metric, key, field and value of every number and text of a document."""
    for direction in ("ingress", "egress"):
        for metric, content in document.get(direction, {}).items():
            for entry in content.get("entries", ()):
                key = json.dumps(entry["key"], separators=(",", ":")) if "key" in entry else None
                for field, value in leaves(entry.get("value"), ""):
                    yield direction, metric, key, field, value


def leaves(value, path):
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{index}]")
    elif isinstance(value, int) and abs(value) >= 1 << 63:
        yield path, str(value)
    elif value is not None:
        yield path, value


def collect(node, probe, collector, database, wait):
    """Takes the windows of one probe until the probe is gone."""
    path = "/v1/probes/" + urllib.parse.quote(probe)
    pause = 1
    while True:
        try:
            listed = node.ask("GET", path + "/windows", {"collector": collector, "wait": wait}, timeout=wait + 30)
            for window in listed["windows"]:
                try:
                    document = node.ask("GET", f"{path}/windows/{window['seq']}")
                except Gone:
                    # The daemon has removed the window since it listed it. The next window tells how many were lost.
                    continue
                new = database.add(document)
                node.ask("DELETE", f"{path}/windows/{window['seq']}", {"collector": collector})
                logging.debug("%s %s window %d%s", node.url, probe, window["seq"], "" if new else ", which was there already")
            pause = 1
        except Gone:
            logging.info("%s has no probe %s any more", node.url, probe)
            return
        except (OSError, http.client.HTTPException, ValueError) as error:
            # The daemon keeps the windows until the database is back.
            logging.warning("%s %s: %s; again in %d s", node.url, probe, error, pause)
            time.sleep(pause)
            pause = min(2 * pause, 60)
        finally:
            if pause > 1:
                node.close()


def watch(node, collector, database, wait, look):
    """Has a thread for each probe of a node that names the collector."""
    threads = {}
    while True:
        try:
            for probe in node.ask("GET", "/v1/probes")["probes"]:
                name, window = probe["name"], probe["config"].get("window") or {}
                running = threads.get(name)
                if collector in window.get("collectors", ()) and not (running and running.is_alive()):
                    arguments = (node, name, collector, database, wait)
                    threads[name] = threading.Thread(target=collect, args=arguments, daemon=True)
                    threads[name].start()
                    logging.info("%s: collecting from %s", node.url, name)
        except (OSError, http.client.HTTPException, ValueError, Gone) as error:
            node.close()
            logging.warning("%s: %s", node.url, error)
        time.sleep(look)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nodes", nargs="+", metavar="URL", help="https://HOST:PORT, http://HOST:PORT or unix:/PATH")
    parser.add_argument("--database", required=True, metavar="FILE")
    parser.add_argument("--collector", required=True, metavar="NAME", help="the name in window.collectors")
    parser.add_argument("--token-file", metavar="FILE", help="a token of the role collector; else TWINPROBE_TOKEN")
    parser.add_argument("--ca", metavar="FILE", help="authorities that have signed the daemons' certificates")
    parser.add_argument("--cert", metavar="FILE", help="certificate of this client with its key")
    parser.add_argument("--wait", type=int, default=30, metavar="SECONDS", help="how long a request waits for a window")
    parser.add_argument("--look", type=float, default=10, metavar="SECONDS", help="time between looks for new probes")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    logging.basicConfig(level=logging.DEBUG if options.verbose else logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    token = os.environ.get("TWINPROBE_TOKEN")
    if options.token_file:
        with open(options.token_file, encoding="utf-8") as file:
            token = file.read().strip()
    context = ssl.create_default_context(cafile=options.ca)
    if options.cert:
        context.load_cert_chain(options.cert)
    database = Database(options.database)
    threads = []
    for url in options.nodes:
        arguments = (Node(url, token, context), options.collector, database, options.wait, options.look)
        threads.append(threading.Thread(target=watch, args=arguments, daemon=True))
        threads[-1].start()
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
