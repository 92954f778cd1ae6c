"""kazoo's Lock, told what to do on its input: take, give, add FILE COUNT, or time COUNT. Answers each with one line, and a
time with one more before it."""

import sys
import time

from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock

client = KazooClient(hosts=sys.argv[1], timeout=2.0)
client.start()
# Names of others count only if their pattern is given.
lock = Lock(client, sys.argv[2], "kazoo", extra_lock_patterns=["-lock-"])
print("ready", flush=True)
for line in sys.stdin:
    words = line.split()
    if words[0] == "take":
        lock.acquire()
    elif words[0] == "give":
        lock.release()
    elif words[0] == "add":
        for _ in range(int(words[2])):
            with lock:
                with open(words[1]) as file:
                    count = int(file.read())
                time.sleep(0.002)
                with open(words[1], "w") as file:
                    file.write(str(count + 1))
    elif words[0] == "time":
        start = time.monotonic_ns()
        for _ in range(int(words[1])):
            lock.acquire()
            lock.release()
        print("took", time.monotonic_ns() - start)
    print("done", words[0], flush=True)
