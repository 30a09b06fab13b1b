import { lstatSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { PROJECT, textOf } from './imports.ts';

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

test('each installation command of the README runs no install script', () => {
  const commands = [...textOf('README.md').matchAll(/^```sh\n(.*?)^```/gms)]
    .flatMap(([, block = '']) => block.split(/\n|&&/))
    .flatMap((line) => /\bnpm (?:ci|install)\b.*/.exec(line)?.[0].trim() ?? []);

  expect(commands.length).toBeGreaterThan(2);
  // The last one makes links only: its packages are installed, and our manifest has no install script.
  const withScripts = commands.filter((command) => !command.includes('--ignore-scripts'));
  expect(withScripts).toEqual(['npm install -g .']);
});

test('no file of the project or of a package that users install is setuid or setgid', () => {
  let files = 0;
  const special: string[] = [];
  const walk = (directory: string): void => {
    for (const entry of readdirSync(directory, { withFileTypes: true })) {
      const path = join(directory, entry.name);
      if (entry.isDirectory()) walk(path);
      if (!entry.isFile()) continue;
      files += 1;
      if ((lstatSync(path).mode & 0o6000) !== 0) special.push(path);
    }
  };
  const shipped = locked.filter(([, { dev, optional }]) => dev !== true && optional !== true).map(([path]) => path);
  for (const directory of ['bin', 'native-deps', 'packaging', 'scripts', 'src', ...shipped])
    walk(join(PROJECT, directory));

  expect(files).toBeGreaterThan(500);
  expect(special).toEqual([]);
});
