import './fewer-entries.ts';
import { AssembledMount } from '../harness/assembled-mount.ts';
import { MemoryService } from '../remote/memory-service.ts';
import { DOCUMENTED_DIFFERENCES } from './documented-differences.ts';
import { InProcessApi } from './in-process-api.ts';
import { conformanceSuite } from './suite.ts';

// The whole mount over another service than that of HTTP, which pushes meanwhile.
let assembled: AssembledMount;
conformanceSuite('the mount over a second service', {
  can: [],
  differs: DOCUMENTED_DIFFERENCES,
  async open() {
    assembled = await AssembledMount.build(new MemoryService());
    return new InProcessApi(assembled.mount);
  },
  close: () => assembled.close(),
});
