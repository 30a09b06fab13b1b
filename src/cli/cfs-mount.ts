#!/usr/bin/env node
import { pathsOf } from '../config/paths.ts';
import { newCommand, programVersion, runProgram, terminalOutput } from './command-line.ts';
import { exitCode } from './exit-codes.ts';
import { readMountWords } from './mount-words.ts';
import { addMountOptions, mountOptions } from './option-flags.ts';

/** `cfs-mount DIR`: puts the cloud folder of a signed-in account at a directory. */

const gathered = (words: string, before: readonly string[]): string[] => [...before, words];

let code = exitCode('ok');
const program = newCommand('cfs-mount')
  .description('Puts your cloud folder at a directory: an ordinary directory from then on, also without a network.')
  .argument('<directory>', 'where to mount; it must exist and be empty')
  .option('--account <name>', 'which account, where several are signed in (cfs status lists them)')
  .option('-o <words>', 'as mount(8) has them: ro,noatime,uid=1000,… (may be repeated)', gathered, [])
  .option('-f, --foreground', 'stay in front and print a line per event')
  .version(programVersion(), '-V, --version', 'show the version')
  .addHelpText('after', '\nTo end it: cfs umount <directory>, or fusermount3 -u <directory>.');
addMountOptions(program).action(
  async (directory: string, flags: { account?: string; foreground?: boolean; o: string[] }) => {
    const paths = pathsOf(process.env);
    const words = readMountWords(flags.o);
    const options = mountOptions(program, process.env, paths, words.options);
    const { mountCommand } = await import('./mount-command.ts');
    code = await mountCommand(
      { paths, options, env: process.env, print: terminalOutput().print },
      { directory, account: flags.account ?? null, foreground: flags.foreground === true, words: words.mount },
    );
  },
);

await runProgram(program, process.argv, () => code);
