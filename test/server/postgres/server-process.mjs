// One of several servers of a database. Run by server-process.ts: node server-process.mjs OPTIONS, as JSON. Prints a line when it answers.

const fromDist = (path) => import(new URL(`../../../dist/${path}`, import.meta.url).href);
const { ReferenceServer } = await fromDist('server/reference-server.js');
const { DirectoryStore } = await fromDist('server/directory-store.js');
const { openS3 } = await fromDist('server/s3/open-s3.js');
const { systemClock } = await fromDist('base/clock.js');
const { objects, ...options } = JSON.parse(process.argv[2]);
const store = objects.startsWith('s3:') ? openS3(objects, process.env, systemClock) : new DirectoryStore(objects);
await ReferenceServer.open({ ...options, objects: store });
process.stdout.write('ready\n');
