#!/usr/bin/env node
import { pathsOf } from '../config/paths.ts';
import { addRow, newCommand, programVersion, runProgram, terminalOutput } from './command-line.ts';
import { CFS_MOUNT } from './command-table.ts';
import { exitCode } from './exit-codes.ts';
import { Invocation } from './invocation.ts';
import { readMountWords } from './mount-words.ts';
import { mountOptions } from './option-flags.ts';

/** `cfs-mount DIR`: puts the cloud folder of a signed-in account at a directory. */

let code = exitCode('ok');
const program = newCommand('cfs-mount')
  .version(programVersion(), '-V, --version', 'show the version')
  .addHelpText('after', '\nTo end it: cfs umount <directory>, or fusermount3 -u <directory>.');
addRow(program, CFS_MOUNT).action(async (first: string, second: string | undefined) => {
  const given = new Invocation(program, [first, second]);
  const [source, directory] = second === undefined ? [null, first] : [first, second];
  const paths = pathsOf(process.env);
  const words = readMountWords(given.texts('-o'));
  const options = mountOptions(program, process.env, paths, words.options);
  const { mountCommand } = await import('./mount-command.ts');
  code = await mountCommand(
    { paths, options, env: process.env, print: terminalOutput().print },
    {
      directory,
      account: given.text('--account') ?? accountOf(source),
      foreground: given.has('--foreground'),
      words: words.mount,
    },
  );
});

/** Sources that say nothing: what people write into fstab(5) where there is none. */
function accountOf(source: string | null): string | null {
  return source === null || ['', 'none', 'cfs', 'cfs-mount'].includes(source) ? null : source;
}

await runProgram(program, process.argv, () => code);
