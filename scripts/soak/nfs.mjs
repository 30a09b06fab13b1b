// The NFS server: records with random mutations, and a walk of 10,000 folders by Spotlight.
export const project = 'unit';
export const files = ['test/nfs/mutated-records.test.ts', 'test/nfs/spotlight.test.ts'];
export const environment = (records = '1000000') => ({ CFS_NFS_RECORDS: records, CFS_NFS_FOLDERS: '10000' });
