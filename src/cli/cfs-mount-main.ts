import { exitCode } from '../mount/exit-codes.ts';
import { cfsMountProgram } from './cfs-mount-program.ts';
import { runProgram, terminalOutput } from './command-line.ts';

/** `cfs-mount DIR`: mounts the cloud folder of a signed-in account at a directory. */

let code = exitCode('ok');
const { print, warn } = terminalOutput();
const program = cfsMountProgram({ env: process.env, print, warn }, async (deps, flags) => {
  const { mountCommand } = await import('./launch/mount-command.ts');
  code = await mountCommand(deps, flags);
});

void runProgram(program, process.argv, () => code);
