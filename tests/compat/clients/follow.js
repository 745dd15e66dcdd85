// node-zookeeper-client follows the ensemble, while its members change; driven by tests/compat/test_following.py.
//
//   NODE_PATH=… node follow.js HOST:PORT
//
// It is told of one server. The client has no call that changes its servers, so they are put where it keeps them. For each
// line "expect HOST:PORT,…" on its input it waits until the configuration names exactly these servers, in this order, writes
// and reads, and prints "ok". At the end of its input it still has the session that it began with.
'use strict';

const assert = require('node:assert/strict');
const readline = require('node:readline');
const { promisify } = require('node:util');
const zookeeper = require('node-zookeeper-client');

const CONFIG = '/zookeeper/config';
const DEADLINE_MS = 90_000;
const SESSION_MS = 30_000;
const client = zookeeper.createClient(process.argv[2], { sessionTimeout: SESSION_MS, retries: 0 });
const call = (name) => promisify(client[name].bind(client));
let followed = '';

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function until(condition, what) {
  const deadline = Date.now() + DEADLINE_MS;
  while (!(await condition())) {
    assert(Date.now() < deadline, `${what} within ${DEADLINE_MS} ms`);
    await sleep(20);
  }
}

// Where clients connect: what follows the semicolon of each line.
function clientAddresses(data) {
  const lines = data.toString().split('\n').filter((line) => line.startsWith('server.') && line.includes(';'));
  return lines.map((line) => line.split(';')[1]);
}

function follow() {
  client.getData(CONFIG, follow, (error, data) => {
    if (error) {
      setTimeout(follow, 100); // the connection was lost; it comes back
      return;
    }
    const addresses = clientAddresses(data);
    if (addresses.length === 0) return;
    const manager = client.connectionManager;
    manager.servers = addresses.map((address) => {
      const [host, port] = address.split(':');
      return { host, port: Number(port) };
    });
    manager.nextServerIndex = 0;
    manager.serverAttempts = 0;
    followed = addresses.join(',');
  });
}

async function main() {
  const connected = new Promise((resolve) => client.once('connected', resolve));
  client.connect();
  await connected;
  const session = client.getSessionId().toString('hex');
  await call('create')('/node', null, zookeeper.CreateMode.EPHEMERAL);
  follow();
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [word, expected] = line.split(' ');
    assert.equal(word, 'expect');
    await until(() => followed === expected, `${expected} in place of ${followed}`);
    await until(
      () => call('setData')('/node', Buffer.from(expected), -1).then(() => true, () => false),
      'a write',
    );
    await until(
      () => call('getData')('/node').then((found) => String(found) === expected || String(found[0]) === expected, () => false),
      'what was written',
    );
    console.log('ok');
  }
  assert.equal(client.getSessionId().toString('hex'), session);
  let owner = '';
  await until(
    () => call('exists')('/node').then((stat) => (owner = stat.ephemeralOwner.toString('hex')), () => false),
    'its ephemeral',
  );
  assert.equal(owner, session);
  client.close();
  console.log('done');
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
