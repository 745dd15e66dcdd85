// node-zookeeper-client: settings that two programs share, with a watch and a version.
//
//   npm install node-zookeeper-client
//   node settings.js [HOST:PORT,...]
'use strict';

const { promisify } = require('node:util');
const zookeeper = require('node-zookeeper-client');

const PATH = '/example-settings-of-node';
const servers = process.argv[2] || '127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183';

function open() {
  return new Promise((resolve) => {
    const client = zookeeper.createClient(servers, { sessionTimeout: 20_000 });
    client.once('connected', () => resolve(client));
    client.connect();
  });
}

function read(client, watcher) {
  return new Promise((resolve, reject) => {
    client.getData(PATH, watcher, (error, data, stat) => (error ? reject(error) : resolve({ data, stat })));
  });
}

async function main() {
  const [one, two] = await Promise.all([open(), open()]);
  const set = (client, text, version) => promisify(client.setData.bind(client))(PATH, Buffer.from(text), version);
  await promisify(one.mkdirp.bind(one))(PATH);
  let tell;
  const changed = new Promise((resolve) => {
    tell = resolve;
  });
  const { stat } = await read(one, (event) => tell(event));
  await set(two, 'blue', stat.version);
  console.log(`${(await changed).getName()}: ${(await read(one)).data}`);
  try {
    await set(one, 'green', stat.version);
    throw new Error('an old version was taken');
  } catch (error) {
    if (!error.getCode || error.getCode() !== zookeeper.Exception.BAD_VERSION) throw error;
    console.log('somebody else was quicker: read again');
  }
  one.close();
  two.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
