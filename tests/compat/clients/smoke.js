// node-zookeeper-client against three servers; driven by tests/compat/test_clients.py.
//
//   NODE_PATH=… node smoke.js HOST:PORT,HOST:PORT,HOST:PORT
//
// Prints "ok NAME" for each claim that held and "done" at the end. Prints "kill PORT" when it wants the server that it
// uses killed, and goes on when a line comes back on its input. Any claim that does not hold ends it.
'use strict';

const assert = require('node:assert/strict');
const readline = require('node:readline');
const { promisify } = require('node:util');
const zookeeper = require('node-zookeeper-client');

const { CreateMode, Event, Exception } = zookeeper;
const DEADLINE_MS = 60_000;
const SESSION_MS = 20_000;
const servers = process.argv[2];
const input = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

// The client's methods with promises instead of callbacks.
function promised(client) {
  const call = (name) => promisify(client[name].bind(client));
  return {
    client,
    create: call('create'),
    remove: call('remove'),
    set: call('setData'),
    children: call('getChildren'),
    exists: call('exists'),
    getACL: call('getACL'),
    mkdirp: call('mkdirp'),
    get: (path, watcher) =>
      new Promise((resolve, reject) => {
        client.getData(path, watcher, (error, data, stat) => (error ? reject(error) : resolve({ data, stat })));
      }),
    session: () => client.getSessionId().toString('hex'),
    port: () => client.connectionManager.socket.remotePort,
  };
}

function open() {
  return new Promise((resolve) => {
    const client = zookeeper.createClient(servers, { sessionTimeout: SESSION_MS, retries: 0 });
    client.once('connected', () => resolve(promised(client)));
    client.connect();
  });
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function until(condition, what) {
  const deadline = Date.now() + DEADLINE_MS;
  while (!(await condition())) {
    assert(Date.now() < deadline, `${what} within ${DEADLINE_MS} ms`);
    await sleep(20);
  }
}

// The next event, as [watcher, promise].
function nextEvent() {
  let watcher;
  const event = new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error('no event in time')), DEADLINE_MS);
    watcher = (one) => {
      clearTimeout(timer);
      resolve(one);
    };
  });
  return [watcher, event];
}

async function rejects(promise, code) {
  await assert.rejects(promise, (error) => error.getCode && error.getCode() === code);
}

async function watch(one, two) {
  let [watcher, event] = nextEvent();
  assert.equal(await one.exists('/n', watcher), null);
  await two.create('/n', Buffer.from('a'));
  assert.equal((await event).getType(), Event.NODE_CREATED);
  [watcher, event] = nextEvent();
  const { data, stat } = await one.get('/n', watcher);
  assert.equal(data.toString(), 'a');
  await two.set('/n', Buffer.from('b'), stat.version);
  assert.equal((await event).getType(), Event.NODE_DATA_CHANGED);
  await rejects(two.set('/n', Buffer.from('c'), 9), Exception.BAD_VERSION);
  [watcher, event] = nextEvent();
  assert.deepEqual(await one.children('/n', watcher), []);
  assert.equal(await two.create('/n/s-', Buffer.alloc(0), CreateMode.PERSISTENT_SEQUENTIAL), '/n/s-0000000000');
  assert.equal((await event).getType(), Event.NODE_CHILDREN_CHANGED);
  console.log('ok watch');
}

async function transaction(one) {
  const commit = (tx) => new Promise((resolve) => tx.commit((error, results) => resolve([error, results])));
  const make = one.client.transaction().create('/tx', Buffer.from('1')).setData('/tx', Buffer.from('2'), 0).check('/tx', 1);
  let [error, results] = await commit(make);
  assert.equal(error, null);
  assert.equal(results.length, 3);
  [error, results] = await commit(one.client.transaction().setData('/tx', Buffer.from('3')).check('/tx', 9).remove('/tx'));
  assert.equal(error.getCode(), Exception.BAD_VERSION);
  assert.equal((await one.get('/tx')).data.toString(), '2');
  console.log('ok transaction');
}

async function access(stranger) {
  const owner = await open();
  owner.client.addAuthInfo('digest', Buffer.from('ann:secret'));
  await owner.create('/private', Buffer.from('x'), zookeeper.ACL.CREATOR_ALL_ACL);
  await rejects(stranger.set('/private', Buffer.from('y'), -1), Exception.NO_AUTH);
  assert.equal((await owner.get('/private')).data.toString(), 'x');
  assert.match((await owner.getACL('/private'))[0].id.id, /^ann:/);
  await owner.remove('/private', -1);
  owner.client.close();
  console.log('ok access');
}

// The recipe of ZooKeeper's documentation: queue up, and wait until the one in front is gone.
async function queueUp(who, directory) {
  return who.create(`${directory}/n-`, Buffer.alloc(0), CreateMode.EPHEMERAL_SEQUENTIAL);
}

async function inFrontOf(who, directory, own) {
  const names = (await who.children(directory)).sort();
  const at = names.indexOf(own.split('/').pop());
  return at > 0 ? `${directory}/${names[at - 1]}` : null;
}

async function wait(who, directory, own) {
  for (let before; (before = await inFrontOf(who, directory, own)) !== null; ) {
    const [watcher, event] = nextEvent();
    if ((await who.exists(before, watcher)) !== null) await event;
  }
}

async function lock(one, two) {
  await one.mkdirp('/lock');
  await until(() => two.exists('/lock'), 'the directory is known to the other server');
  let inside = 0;
  let turns = 0;
  const worker = async (who) => {
    for (let turn = 0; turn < 10; turn++) {
      const own = await queueUp(who, '/lock');
      await wait(who, '/lock', own);
      assert.equal(++inside, 1);
      await sleep(1);
      inside--;
      turns++;
      await who.remove(own, -1);
    }
  };
  await Promise.all([worker(one), worker(two), worker(one)]);
  assert.equal(turns, 30);
  console.log('ok lock');
}

async function election(one) {
  const two = await open();
  await one.mkdirp('/election');
  await until(() => two.exists('/election'), 'the directory is known to the other server');
  const leader = await queueUp(two, '/election');
  const next = await queueUp(one, '/election');
  assert.equal(await inFrontOf(one, '/election', next), leader);
  const elected = wait(one, '/election', next);
  two.client.close();
  await elected;
  assert.equal(await inFrontOf(one, '/election', next), null);
  console.log('ok election');
}

// A cache of one value: read, and again whenever the watch fires.
function cacheOf(who, path) {
  const cache = { value: null };
  const refresh = () =>
    who.get(path, refresh).then(
      ({ data }) => (cache.value = data.toString()),
      () => setTimeout(refresh, 50), // between two connections
    );
  refresh();
  return cache;
}

async function reconnect(one, two, cache) {
  const session = one.session();
  await one.create('/mine', Buffer.from('x'), CreateMode.EPHEMERAL);
  const [watcher, event] = nextEvent();
  assert.equal(await one.exists('/watched', watcher), null);
  const before = one.port();
  console.log(`kill ${before}`);
  assert.equal((await input.next()).done, false);
  await until(() => two.create('/watched').then(() => true, (error) => error.getCode() === Exception.NODE_EXISTS), 'created');
  assert.equal((await event).getType(), Event.NODE_CREATED);
  await until(() => two.set('/cached', Buffer.from('third'), -1).then(() => true, () => false), 'set');
  await until(() => cache.value === 'third', 'the cache caught up');
  assert.equal(one.session(), session);
  assert.notEqual(one.port(), before);
  const stat = await one.exists('/mine');
  assert.equal(stat.ephemeralOwner.toString('hex'), session);
  console.log('ok reconnect');
}

async function endOfSession(one, two) {
  await until(() => two.exists('/mine'), 'the ephemeral is known to the other server');
  const [watcher, event] = nextEvent();
  assert.notEqual(await two.exists('/mine', watcher), null);
  const began = Date.now();
  one.client.close();
  assert.equal((await event).getType(), Event.NODE_DELETED);
  assert(Date.now() - began < SESSION_MS / 2, 'long before the session would have expired');
  assert.equal(await two.exists('/mine'), null);
  console.log('ok close');
}

async function main() {
  const one = await open();
  const two = await open();
  await watch(one, two);
  await transaction(one);
  await access(two);
  await lock(one, two);
  await election(one);
  await one.create('/cached', Buffer.from('first'));
  const cache = cacheOf(one, '/cached');
  await until(() => cache.value === 'first', 'the cache is filled');
  await until(() => two.set('/cached', Buffer.from('second'), -1).then(() => true, () => false), 'set');
  await until(() => cache.value === 'second', 'the cache followed');
  console.log('ok cache');
  await reconnect(one, two, cache);
  await endOfSession(one, two);
  two.client.close();
  console.log('done');
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
