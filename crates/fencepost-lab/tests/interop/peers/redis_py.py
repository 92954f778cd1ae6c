"""A player over redis-py's Lock."""

import json
import os
import random
import time

import redis
from redis.exceptions import LockNotOwnedError
from redis.lock import Lock

task = json.loads(os.environ["FENCEPOST_INTEROP_TASK"])
lane = f"redis-py/{os.getpid()}"
history = os.open(task["history"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
updates = 0


def now():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def record(kind, phase, claim, **more):
    event = {"t_ns": now(), "lane": lane, "kind": kind, "phase": phase, "lock": task["lock"], "claim": claim}
    os.write(history, (json.dumps(event | more) + "\n").encode())


class TimedLock(Lock):
    """The same lock, which keeps the moment before its last request."""

    def do_acquire(self, token):
        self.asked = now()
        return super().do_acquire(token)


def update(claim, deadline):
    global updates
    updates += 1
    name = f"{lane}:{updates}"
    record("write", "invoke", claim, update=name)
    with open(task["resource"]) as file:
        before = file.read()
    time.sleep(random.uniform(0, 0.005))
    draft = f"{task['resource']}.{os.getpid()}"
    with open(draft, "w") as file:
        file.write(f"{before}{name}\n")
    outcome = "failed"
    if now() < deadline:
        os.rename(draft, task["resource"])
        outcome = "ok" if now() < deadline else "unknown"
    record("write", "return", claim, update=name, outcome=outcome)


def once(lock, claim):
    record("acquire", "invoke", claim)
    lock.acquire()
    # It names no moment until which the lock is valid, so the one of the Redlock description stands for it.
    ttl = task["ttl_ms"] * 1_000_000
    deadline = lock.asked + ttl - ttl // 100 - 2_000_000
    record("acquire", "return", claim, outcome="ok", deadline_ns=deadline)
    if task["hold_ms"] is None:
        update(claim, deadline)
    else:
        time.sleep(task["hold_ms"] / 1000)
    record("release", "invoke", claim)
    try:
        lock.release()
        outcome = "ok"
    except LockNotOwnedError:
        outcome = "lost"
    record("release", "return", claim, outcome=outcome)


lock = TimedLock(redis.from_url(task["url"]), task["key"], timeout=task["ttl_ms"] / 1000, sleep=0.02)
count = 0
while True:
    count += 1
    once(lock, f"{lane}/{count}")
    if task["hold_ms"] is not None:
        break
    time.sleep(random.uniform(0, 0.02))
