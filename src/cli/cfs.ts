#!/usr/bin/env node
import { systemClock } from '../base/clock.ts';
import { pathsOf } from '../config/paths.ts';
import { cfsProgram } from './cfs-program.ts';
import { runProgram, terminalOutput } from './command-line.ts';
import { exitCode } from './exit-codes.ts';
import { withPath } from './failure.ts';

/** `cfs`: everything about the cloud folder that is not mounting. Its commands: `command-table.ts`. */

let code = exitCode('ok');
const output = terminalOutput();
const context = {
  ...output,
  // Asked for by a command: what keeps it from being known is told like any other failure, and --help needs none.
  get paths() {
    return pathsOf(process.env);
  },
  clock: systemClock,
  env: process.env,
};
const program = cfsProgram(context, (ended) => {
  code = ended;
});

await runProgram(program, process.argv, () => {
  const unwritten = output.whyUnwritten();
  // What was asked for is done, but whoever keeps what was printed has a part of it.
  if (unwritten !== null && code === exitCode('ok')) throw withPath(unwritten, 'standard output');
  return code;
});
