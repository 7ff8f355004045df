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


# What a turn has besides its text: markers, roles, the wrapping of a result, the opening of the reply and of its thought,
# and what the last reply ended with and was not evaluated. Each of the turn's texts may also be cut apart differently
# where it meets its wrapping.
WRAPPING, JOINT = 16, 2


def most_evaluated(server, texts):
    """Most tokens that a turn may evaluate which adds these texts to a conversation."""
    return WRAPPING + sum(tokens(server, text) + JOINT for text in texts)
