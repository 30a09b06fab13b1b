import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Administration } from '../../../src/server/administration.ts';
import { openParts } from '../../../src/server/local-back-end.ts';
import { localRules } from '../../../src/server/local-rules.ts';
import { ManualClock } from '../../tree/tree-fixture.ts';
import { accountSuite } from './account-suite.ts';
import type { BackEnd, BackEndOptions } from './back-end.ts';
import { modelSuite } from './model-suite.ts';
import { repositorySuite } from './repository-suite.ts';

async function open(options: BackEndOptions): Promise<BackEnd> {
  const directory = await mkdtemp(join(tmpdir(), 'cfs-rules-'));
  const clock = new ManualClock();
  const parts = openParts({ dataDirectory: directory, clock, ...options });
  const close = async (): Promise<void> => {
    await parts.database.close();
    await rm(directory, { recursive: true });
  };
  return { rules: localRules(parts), administration: new Administration(parts), clock, close };
}

accountSuite('the rules for accounts over LMDB', open);
repositorySuite('the rules for folders and files over LMDB', open);
modelSuite('LMDB', open);
