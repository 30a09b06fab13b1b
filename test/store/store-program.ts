/**
 * The beginning of a program that lives in a store, in a process of its own (arguments: dist, the store's directory), and ends as its test wants
 * it to. It has the store and its contents, and what a node is made of.
 */
export function storeProgram(options: { readonly segmentBytes: number; readonly cacheBytes: number }): string {
  return `
const [dist, directory] = process.argv.slice(1);
const { Store } = await import(dist + '/store/environment.js');
const { ContentStore } = await import(dist + '/bytes/content-store.js');
const { newInode, removeNode, writeNode } = await import(dist + '/store/node-table.js');
const { systemClock: clock } = await import(dist + '/base/clock.js');
const { silentLogger: log } = await import(dist + '/base/log.js');
const fs = await import('node:fs');
const store = await Store.open({ directory, log, clock, segmentBytes: ${options.segmentBytes} });
const contents = new ContentStore({ store, directory, log, clock,
  options: { inlineMaxBytes: 4096, cacheBytes: ${options.cacheBytes} } });
const file = 'https://service.example/file/';
const time = { sec: 1, nsec: 0 };
const local = (parent, name, content, sizeBytes) =>
  ({ parent, name, mode: 420, uid: 0, gid: 0, atime: time, mtime: time, ctime: time, xattrs: null, content, sizeBytes });
`;
}
