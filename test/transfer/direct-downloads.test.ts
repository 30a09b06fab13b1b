import { directDownloads } from './direct-downloads-suite.ts';

directDownloads(null);
