// Saves go on beside a server that stopped, with eight reads hanging and a listing of 100,000 entries under way.
export const files = ['test/programs/hanging-server.mount.test.ts'];
export const environment = (entries = '100000') => ({ CFS_ENTRIES: entries });
