import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFailed, test } from 'vitest';
import { runCommand } from '../harness/command.ts';
import { ReferenceServer } from '../harness/reference-server.ts';
import { PROJECT, textOf } from '../imports.ts';
import { CommandHome } from './cli-harness.ts';

/** The commands that README.md tells people to type, as they stand there; only the address is that of a service of ours. */

const INSTALL = `npm ci --ignore-scripts
npm pack
mkdir -p ~/.local/lib/cfs-mount
tar -xzf cfs-mount-*.tgz --strip-components=1 -C ~/.local/lib/cfs-mount
cd ~/.local/lib/cfs-mount && npm ci --omit=dev --ignore-scripts && npm install -g .
`;

/** Blocks that have a test of their own, which types them. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  'npm start\n': 'test/cli/npm-start.mount.test.ts',
  'sudo apt install ./cfs-mount_*.deb\n': 'test/packages/debian-package.mount.test.ts',
  [INSTALL]: 'test/cli/package.mount.test.ts',
};

const blocks = [...textOf('README.md').matchAll(/^```sh\n(.*?)^```$/gms)].map(([, script = '']) => script);
let home: CommandHome;
let server: ReferenceServer;

beforeAll(async () => {
  home = new CommandHome();
  server = await ReferenceServer.start();
  mkdirSync(home.path('bin'));
  for (const name of ['cfs', 'cfs-mount']) {
    const program = join(PROJECT, 'dist/cli', `${name}.js`);
    writeFileSync(home.path(`bin/${name}`), `#!/bin/sh\nexec '${process.execPath}' '${program}' "$@"\n`, {
      mode: 0o755,
    });
  }
});

afterAll(async () => {
  await server.dispose();
  home.dispose();
});

test('there are commands to run', () => {
  expect(blocks.length).toBeGreaterThanOrEqual(3);
  for (const [script, file] of Object.entries(ELSEWHERE)) {
    expect(blocks).toContain(script);
    expect(textOf(file)).toMatch(/npm|\.deb/);
  }
});

test.each(blocks.filter((script) => ELSEWHERE[script] === undefined))('%s', async (script) => {
  onTestFailed(() => console.error(server.log));
  const { account } = server;
  const typed = script.replaceAll('https://api.example.com', account.url);
  const env = {
    ...home.env,
    PATH: `${home.path('bin')}:${process.env.PATH}`,
    CFS_USERNAME: account.username,
    CFS_PASSWORD: account.password,
    CFS_APPLICATION: account.application,
    CFS_ACCESS_KEY_ID: account.accessKeyId,
    CFS_PRIVATE_ACCESS_KEY: account.privateAccessKey,
  };

  const { stderr } = await runCommand(['bash', '--norc', '-eu', '-c', typed], { env });

  expect(stderr).toBe('');
  expect(readFileSync('/proc/mounts', 'utf8')).not.toContain(home.directory);
});
