import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe } from 'vitest';
import { Authority } from '../cli/doctor-ground.ts';
import { missingPrograms, titled } from '../harness/requirement.ts';
import { type Certified, directDownloads } from './direct-downloads-suite.ts';

const missing = missingPrograms('openssl');

describe.skipIf(missing !== null)(titled('by TLS', missing), () => {
  if (missing === null) directDownloads(certified());
});

function certified(): Certified {
  const directory = mkdtempSync(join(tmpdir(), 'cfs-direct-tls-'));
  const authority = new Authority(join(directory, 'authority'));
  const made = { ...authority.certify(), authority: readFileSync(authority.certificateFile, 'utf8') };
  rmSync(directory, { recursive: true });
  return made;
}
