#!/usr/bin/env node
import { systemClock } from '../base/clock.ts';
import { UsageError } from '../base/errors.ts';
import { pathsOf } from '../config/paths.ts';
import { parseDuration } from '../config/units.ts';
import { newCommand, programVersion, runProgram, terminalOutput } from './command-line.ts';
import { exitCode } from './exit-codes.ts';
import { addMountOptions, mountOptions } from './option-flags.ts';
import { terminalPrompt } from './prompt.ts';
import { registerServe } from './serve.ts';

/** `cfs`: everything about the cloud folder that is not mounting. Subcommands are loaded when they are asked for. */

let code = exitCode('ok');
const paths = pathsOf(process.env);
const output = terminalOutput();
const program = newCommand('cfs')
  .description('Looks after the cloud folders that cfs-mount mounts.')
  .version(programVersion(), '-V, --version', 'show the version')
  .enablePositionalOptions();

program
  .command('login')
  .description('sign in to the service; what is not in the environment (CFS_USERNAME …) is asked for')
  .argument('[url]', 'where the service is, for instance https://api.example.com (CFS_URL)')
  .option('--insecure', 'send the password without encryption to another machine')
  .action(async (url: string | undefined, flags: { insecure?: boolean }) => {
    const { loginCommand } = await import('./login.ts');
    const prompt = terminalPrompt(process.stdin as never, process.stderr as never);
    const deps = { paths, clock: systemClock, env: process.env, prompt, print: output.print };
    code = await loginCommand(deps, { url: url ?? null, insecure: flags.insecure === true });
  });

program
  .command('status')
  .description('what is mounted, pending and parked')
  .option('--json', 'everything, for scripts')
  .action(async (flags: { json?: boolean }) => {
    const { statusCommand } = await import('./status.ts');
    code = await statusCommand({ paths, clock: systemClock, print: output.print }, { json: flags.json === true });
  });

program
  .command('sync')
  .description('push at once everything that was closed until now')
  .argument('[path]', 'anything in the mount that is meant, where several are running')
  .option('--wait', 'return when it is with the service')
  .option('--timeout <duration>', 'stop waiting after this long')
  .option('--account <name>', 'which account, where several are mounted')
  .action(async (file: string | undefined, flags: { wait?: boolean; timeout?: string; account?: string }) => {
    const { syncCommand } = await import('./sync.ts');
    const timeoutMs = flags.timeout === undefined ? null : timeoutOf(flags.timeout);
    code = await syncCommand(
      { ...output, paths },
      { file: file ?? null, account: flags.account ?? null, wait: flags.wait === true, timeoutMs },
    );
  });

program
  .command('refresh')
  .description('ask the service what is there now, and return when the mount shows it')
  .argument('[path]', 'a folder in the mount; without one: every folder in use')
  .option('--accept', 'believe that many files at once are gone')
  .option('--account <name>', 'which account, where several are mounted')
  .action(async (file: string | undefined, flags: { accept?: boolean; account?: string }) => {
    const { refreshCommand } = await import('./refresh.ts');
    const wanted = { file: file ?? null, account: flags.account ?? null, accept: flags.accept === true };
    code = await refreshCommand({ ...output, paths }, wanted);
  });

program
  .command('retry')
  .description('try again what is parked')
  .argument('[path]', 'a file or folder in the mount; without one: everything')
  .option('--account <name>', 'which account, where several are mounted')
  .action(async (file: string | undefined, flags: { account?: string }) => {
    const { retryCommand } = await import('./refresh.ts');
    code = await retryCommand({ ...output, paths }, { file: file ?? null, account: flags.account ?? null });
  });

program
  .command('umount')
  .description('end a mount in order, when everything is pushed')
  .argument('[directory]', 'which mount, where several are running')
  .option('--now', 'do not push what is pending; it is kept and pushed at the next start')
  .option('--timeout <duration>', 'push what is pending for at most this long')
  .option('--account <name>', 'which account, where several are mounted')
  .action(async (directory: string | undefined, flags: { now?: boolean; timeout?: string; account?: string }) => {
    const { umountCommand } = await import('./umount.ts');
    const pushMs = flags.timeout === undefined ? null : timeoutOf(flags.timeout);
    const timeoutMs = flags.now === true ? 0 : pushMs;
    const deps = { ...output, paths, clock: systemClock };
    code = await umountCommand(deps, { directory: directory ?? null, account: flags.account ?? null, timeoutMs });
  });

program
  .command('doctor')
  .description('look whether what is kept on this machine is as it should be')
  .option('--store', 'read all of the local store, bytes included; the account must not be mounted')
  .option('--account <name>', 'which account; without it: every one that is signed in')
  .action(async (flags: { store?: boolean; account?: string }) => {
    const { doctorCommand } = await import('./doctor.ts');
    const wanted = { store: flags.store === true, account: flags.account ?? null };
    code = await doctorCommand({ paths, clock: systemClock, print: output.print }, wanted);
  });

const demo = program
  .command('demo')
  .description('try it out: an embedded server with a demo account, mounted in front (npm start)')
  .argument('[directory]', 'where to mount; made if it is missing (default: ~/Cloud)');
addMountOptions(demo).action(async (directory: string | undefined) => {
  const options = mountOptions(demo, process.env, paths);
  const { demoCommand } = await import('./demo.ts');
  const deps = { paths, options, env: process.env, clock: systemClock, print: output.print };
  code = await demoCommand(deps, { directory: directory ?? null });
});

registerServe(program, {
  defaultDirectory: paths.serverDirectory,
  env: process.env,
  print: output.print,
  ended: (ended) => {
    code = ended;
  },
});

await runProgram(program, process.argv, () => code);

function timeoutOf(text: string): number {
  try {
    return parseDuration(text);
  } catch (error) {
    throw new UsageError(`--timeout: ${(error as Error).message}`);
  }
}
