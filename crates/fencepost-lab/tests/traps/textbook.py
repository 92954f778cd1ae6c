"""Locks as textbooks write them. Reads one order a line, answers one word a line."""

import sys
import uuid

import redis

server = redis.from_url(sys.argv[1], decode_responses=True)


def take(name, ttl_ms):
    mine = uuid.uuid4().hex
    return mine if server.set("lock:" + name, mine, nx=True, px=int(ttl_ms)) else "-"


def take_for_ever(name):
    """No time to live."""
    mine = uuid.uuid4().hex
    return mine if server.set("lock:" + name, mine, nx=True) else "-"


def free(name):
    """A plain DEL: whose lock is it?"""
    server.delete("lock:" + name)
    return "freed"


def check_and_free(name, mine):
    """GET, and then DEL: two round trips, and between them whatever the next line of the input waits for."""
    if server.get("lock:" + name) != mine:
        return "not-mine"
    print("mine", flush=True)
    sys.stdin.readline()
    server.delete("lock:" + name)
    return "freed"


def take_with_token(name, ttl_ms):
    """The token before the lock, and no look at whether there was one."""
    token = server.incr("fence:" + name)
    server.set("lock:" + name, token, nx=True, px=int(ttl_ms))
    return token


ORDERS = {f.__name__: f for f in (take, take_for_ever, free, check_and_free, take_with_token)}

for line in iter(sys.stdin.readline, ""):
    order, *arguments = line.split()
    print(ORDERS[order](*arguments), flush=True)
