// Random operations on both back ends of `cfs serve`, each the oracle of the other. Copies between them that are killed. And
// the conformance and fault suites in front of three servers. Large uploads through radosgw on the disk.
export const project = ['unit', 'mount'];
export const files = [
  'test/server/twins/twins.test.ts',
  'test/server/serve-copy.mount.test.ts',
  'test/conformance/several-servers.mount.test.ts',
  'test/faults/several-servers.mount.test.ts',
  'test/server/s3/radosgw.mount.test.ts',
];
export const environment = (operations = '10000') => ({
  CFS_BACK_END_OPERATIONS: operations,
  CFS_COPY_KILLS: '30',
  CFS_SEVERAL_SERVERS: '1',
  CFS_LARGE_UPLOAD_MIB: '1024',
  CFS_CASES_SEED: process.env.CFS_CASES_SEED ?? 'random',
});
