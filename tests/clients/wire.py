"""Requests over bare HTTP, as agents send them: streams of events, and how many tokens a text has."""

import http.client
import json


def post(server, path, body, headers=()):
    """Sends a body; returns the status and the answer's object."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=300)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **dict(headers)})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def events(server, path, body):
    """Sends a body that asks for a stream; yields the events, each with its name and its object."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=300)
    try:
        connection.request("POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise AssertionError((response.status, response.read()))
        name, data = None, []
        for line in response:
            line = line.decode().rstrip("\n")
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                data.append(line[6:])
            elif not line and data:
                yield name, json.loads("\n".join(data))
                name, data = None, []
    finally:
        connection.close()


def tokens(server, text):
    """How many tokens a text has by itself."""
    status, answer = post(server, "/tokenize", {"text": text})
    assert status == 200, answer
    return len(answer["tokens"])
