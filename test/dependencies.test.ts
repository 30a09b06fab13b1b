import { expect, test } from 'vitest';
import { textOf } from './imports.ts';

/** Few, pinned, and none that runs anything when it is installed. */

interface Locked {
  readonly version: string;
  readonly resolved?: string;
  readonly integrity?: string;
  readonly dev?: boolean;
  readonly optional?: boolean;
  readonly link?: boolean;
}

const manifest = JSON.parse(textOf('package.json')) as {
  dependencies: Record<string, string>;
  devDependencies: Record<string, string>;
  optionalDependencies?: Record<string, string>;
  allowScripts: Record<string, boolean>;
  scripts: Record<string, string>;
};
const { packages } = JSON.parse(textOf('package-lock.json')) as { packages: Record<string, Locked> };
const locked = Object.entries(packages).filter(([path]) => path !== '');

test('what we name is one version, not a range, and the lock file has that one', () => {
  const named = { ...manifest.dependencies, ...manifest.devDependencies, ...manifest.optionalDependencies };

  for (const [name, version] of Object.entries(named)) {
    expect(version, name).toMatch(/^\d+\.\d+\.\d+$/);
    expect(packages[`node_modules/${name}`]?.version, name).toBe(version);
  }
});

test('everything that is installed has its hash in the lock file, and no address of a registry', () => {
  for (const [path, { integrity, resolved, link }] of locked) {
    if (link === true) continue;
    expect(integrity, path).toMatch(/^sha512-/);
    expect(resolved ?? '', path).not.toMatch(/^http/);
  }
});

test('few packages run at users: each is one more that has to be trusted', () => {
  const shipped = locked.filter(([, { dev, optional }]) => dev !== true && optional !== true);

  expect(Object.keys(manifest.dependencies).length).toBeLessThanOrEqual(12);
  expect(shipped.length).toBeLessThanOrEqual(45);
});

test('no package runs a script at its installation, ours neither', () => {
  expect(Object.values(manifest.allowScripts)).not.toContain(true);
  for (const name of ['preinstall', 'install', 'postinstall', 'prepare'])
    expect(manifest.scripts).not.toHaveProperty(name);
});
