// A player over node-redlock, with one node; both of its versions.
const fs = require('node:fs');
const Redis = require('ioredis');

const task = JSON.parse(process.env.FENCEPOST_INTEROP_TASK);
const isBeta = task.client === 'redlock-beta';
const Redlock = isBeta ? require('redlock-beta').default : require('redlock');
const lane = `${task.client}/${process.pid}`;
const history = fs.openSync(task.history, 'a');
const redis = new Redis(task.url);
const redlock = new Redlock([redis], { retryCount: -1, retryDelay: 25, retryJitter: 10 });
redlock.on(isBeta ? 'error' : 'clientError', () => {});

const now = () => Number(process.hrtime.bigint() + BigInt(task.offset_ns));
const rest = (ms) => new Promise((done) => setTimeout(done, ms));

function record(kind, phase, claim, more) {
  const event = { t_ns: now(), lane, kind, phase, lock: task.lock, claim, ...more };
  fs.writeSync(history, JSON.stringify(event) + '\n');
}

let updates = 0;
async function update(claim, deadline) {
  updates += 1;
  const name = `${lane}:${updates}`;
  record('write', 'invoke', claim, { update: name });
  const before = fs.readFileSync(task.resource, 'utf8');
  await rest(Math.random() * 5);
  const draft = `${task.resource}.${process.pid}`;
  fs.writeFileSync(draft, `${before}${name}\n`);
  let outcome = 'failed';
  if (now() < deadline) {
    fs.renameSync(draft, task.resource);
    outcome = now() < deadline ? 'ok' : 'unknown';
  }
  record('write', 'return', claim, { update: name, outcome });
}

async function once(claim) {
  record('acquire', 'invoke', claim);
  const lock = isBeta ? await redlock.acquire([task.key], task.ttl_ms) : await redlock.lock(task.key, task.ttl_ms);
  // In this order: what passes between the two readings shortens the time.
  const at = now();
  const deadline = at + (lock.expiration - Date.now()) * 1e6;
  record('acquire', 'return', claim, { outcome: 'ok', deadline_ns: deadline });
  if (task.hold_ms === null) await update(claim, deadline);
  else await rest(task.hold_ms);
  record('release', 'invoke', claim);
  // The new version repeats a release as often as an acquire, also one of a lock that is gone.
  const release = isBeta ? redlock.release(lock, { retryCount: 0 }) : lock.unlock();
  const outcome = await release.then(() => 'ok', () => 'lost');
  record('release', 'return', claim, { outcome });
}

async function main() {
  for (let count = 1; ; count += 1) {
    await once(`${lane}/${count}`);
    if (task.hold_ms !== null) break;
    await rest(Math.random() * 20);
  }
  redis.disconnect();
}

main();
