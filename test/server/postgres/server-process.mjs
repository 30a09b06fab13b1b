// One of several servers of a database. Run by server-process.ts: node server-process.mjs OPTIONS, as JSON. Prints a line when it answers.

const fromDist = (path) => import(new URL(`../../../dist/${path}`, import.meta.url).href);
const { ReferenceServer } = await fromDist('server/reference-server.js');
const { DirectoryStore } = await fromDist('server/directory-store.js');
const { objects, ...options } = JSON.parse(process.argv[2]);
await ReferenceServer.open({ ...options, objects: new DirectoryStore(objects) });
process.stdout.write('ready\n');
