"""Reads IPFIX with python3-ipfix.

reading.py read FILE...: prints all records as JSON. It knows our elements only from type records.
reading.py collect PORT DIRECTORY [CERT KEY CLIENTS]: stores what each connection sends as a file, then closes the connection.
"""

import datetime
import io
import json
import os
import socket
import ssl
import sys

import ipfix

TYPES = {
    0: "octetArray", 1: "unsigned8", 2: "unsigned16", 3: "unsigned32", 4: "unsigned64", 5: "signed8", 6: "signed16",
    7: "signed32", 8: "signed64", 9: "float32", 10: "float64", 11: "boolean", 12: "macAddress", 13: "string",
    15: "dateTimeMilliseconds", 17: "dateTimeNanoseconds", 18: "ipv4Address", 19: "ipv6Address",
}


# Times in nanoseconds count from 1900 (RFC 7011, section 6.1.9); python3-ipfix 0.9 takes them as counted from 1970.
SINCE_1900 = datetime.timedelta(seconds=2208988800)
NANOSECONDS = ("windowStart", "windowEnd")


def learn(record):
    spec = "%s(%d/%d)<%s>" % (
        record["informationElementName"], record["privateEnterpriseNumber"], record["informationElementId"],
        TYPES[record["informationElementDataType"]],
    )
    ipfix.ie.for_spec(spec)


def read(paths):
    ipfix.ie.use_iana_default()
    ipfix.ie.use_5103_default()
    found, expected, types = [], None, 0
    for path in paths:
        content = open(path, "rb").read()
        messages = ipfix.message.MessageBuffer()
        stream, expected = io.BytesIO(content), 0
        while stream.tell() < len(content):
            messages.read_message(stream)
            # The library counts the records itself as it reads them.
            assert messages.sequence == expected, (path, messages.sequence, expected)
            for record in messages.namedict_iterator():
                expected += 1
                if "informationElementName" in record:
                    learn(record)
                    types += 1
                else:
                    found.append({k: v - SINCE_1900 if k in NANOSECONDS else v for k, v in record.items()})
    print(json.dumps({"records": found, "types": types}, default=str))


def collect(port, directory, *tls):
    server = socket.create_server(("127.0.0.1", port))
    context = None
    if tls:
        cert, key, clients = tls
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=clients)
        context.load_cert_chain(cert, key)
        context.verify_mode = ssl.CERT_REQUIRED
    number = len(os.listdir(directory))
    while True:
        connection, _ = server.accept()
        parts = []
        try:
            if context:
                connection = context.wrap_socket(connection, server_side=True)
            while part := connection.recv(65536):
                parts.append(part)
        except OSError:
            connection.close()
            continue
        path = os.path.join(directory, "%05d" % number)
        with open(path + ".part", "wb") as file:
            file.write(b"".join(parts))
            file.flush()
            os.fsync(file.fileno())
        os.rename(path + ".part", path + ".ipfix")
        number += 1
        connection.close()


if sys.argv[1] == "read":
    read(sys.argv[2:])
else:
    collect(int(sys.argv[2]), *sys.argv[3:])
