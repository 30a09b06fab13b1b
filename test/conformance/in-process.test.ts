import { FileSystemSide } from '../harness/file-system-side.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';
import { DOCUMENTED_DIFFERENCES } from './documented-differences.ts';
import { InProcessApi } from './in-process-api.ts';
import { conformanceSuite } from './suite.ts';

// The file system itself, on its real store, without a kernel and without a service.
let side: FileSystemSide;
conformanceSuite('the file system in process', {
  can: [],
  differs: DOCUMENTED_DIFFERENCES,
  async open() {
    side = await FileSystemSide.build();
    return new InProcessApi(new InProcessMount(side.fileSystem));
  },
  close: () => side.close(),
});
