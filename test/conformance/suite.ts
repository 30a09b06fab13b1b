import { afterAll, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import { attributeScenarios } from './cases/attributes.ts';
import { concurrencyScenarios } from './cases/concurrency.ts';
import { dataScenarios } from './cases/data.ts';
import { errnoScenarios } from './cases/errnos.ts';
import { fileScenarios } from './cases/files.ts';
import { folderScenarios } from './cases/folders.ts';
import { linkScenarios } from './cases/links.ts';
import { mappingScenarios } from './cases/mappings.ts';
import { nameScenarios } from './cases/names.ts';
import { permissionScenarios } from './cases/permissions.ts';
import { renameScenarios } from './cases/rename.ts';
import { spaceScenarios } from './cases/space.ts';
import { specialFileScenarios } from './cases/special-files.ts';
import { xattrScenarios } from './cases/xattrs.ts';
import type { Capability, FileApi } from './file-api.ts';
import type { Scenario } from './scenario.ts';
import { Workplace } from './workplace.ts';

/** Every case, by topic. All of them hold on ext4. */
export const SCENARIOS: Readonly<Record<string, readonly Scenario[]>> = {
  files: fileScenarios,
  data: dataScenarios,
  names: nameScenarios,
  folders: folderScenarios,
  rename: renameScenarios,
  links: linkScenarios,
  'special files': specialFileScenarios,
  attributes: attributeScenarios,
  permissions: permissionScenarios,
  xattrs: xattrScenarios,
  space: spaceScenarios,
  mappings: mappingScenarios,
  concurrency: concurrencyScenarios,
  errnos: errnoScenarios,
};

/** A case in which a file system differs from ext4, for a reason that its documentation gives too. */
export interface Difference {
  readonly reason: string;
  /** What it does instead: asserted in place of the case. */
  instead(fs: Workplace): Promise<void>;
}

export interface ConformanceOptions {
  /** Opens the file system under test; called once, before the first case. */
  open(): Promise<FileApi>;
  /** After the last case. */
  close(): Promise<void>;
  /** What `open` will be able to do: cases that need more are shown as skipped. */
  readonly can: readonly Capability[];
  /** By the name of the case. A name that no case has is an error, so that the list cannot outlive what it excuses. */
  readonly differs?: Readonly<Record<string, Difference>>;
  /** Cases that do not hold, with the reason: each of them must fail, so that one that begins to hold turns red, too. */
  readonly fails?: Readonly<Record<string, string>>;
  /** Without this nothing can run: all is skipped in words. */
  readonly missing?: string | null;
  /** On a failure: what helps to understand it. */
  onFailure?(): Promise<void> | void;
}

/** Declares one vitest test for each case, under `title`. */
export function conformanceSuite(title: string, options: ConformanceOptions): void {
  const { differs = {}, fails = {} } = options;
  const names = new Set(Object.values(SCENARIOS).flatMap((scenarios) => scenarios.map(({ name }) => name)));
  const unknown = [...Object.keys(differs), ...Object.keys(fails)].filter((name) => !names.has(name));
  if (unknown.length > 0) throw new Error(`no such cases: ${unknown.join('; ')}`);
  const { missing = null } = options;
  describe.skipIf(missing !== null)(missing === null ? title : `${title} (needs: ${missing})`, () => {
    let api: FileApi;
    let cases = 0;
    beforeAll(async () => {
      api = await options.open();
    });
    afterAll(async () => {
      await api?.dispose();
      await options.close();
    });

    for (const [topic, scenarios] of Object.entries(SCENARIOS)) {
      describe(topic, () => {
        for (const { name, needs, run } of scenarios) {
          const lacking = needs.filter((need) => !options.can.includes(need));
          const difference = differs[name];
          if (lacking.length > 0) {
            test.skip(`${name} (needs: ${lacking.join(', ')})`, () => {});
            continue;
          }
          const reason = fails[name];
          if (reason !== undefined) {
            test(`${name} — does not hold: ${reason}`, async () => {
              const held = await inFolder(api, `case-${++cases}`, run).then(
                () => true,
                () => false,
              );
              expect(held, 'holds now: take it off the list').toBe(false);
            });
            continue;
          }
          test(difference === undefined ? name : `${name} — differs: ${difference.reason}`, async () => {
            onTestFailed(async () => options.onFailure?.());
            await inFolder(api, `case-${++cases}`, difference?.instead.bind(difference) ?? run);
          });
        }
      });
    }
  });
}

async function inFolder(api: FileApi, folder: string, run: Scenario['run']): Promise<void> {
  await api.mkdir(folder, 0o755);
  const place = new Workplace(api, folder);
  try {
    await run(place);
  } finally {
    await place.leave();
  }
  await place.clear();
  await expect(api.stat(folder), 'the folder of the case is gone').rejects.toMatchObject({ errno: 'ENOENT' });
}
