import { systemClock } from '../base/clock.ts';
import { pathsOf } from '../config/paths.ts';
import { exitCode } from '../mount/exit-codes.ts';
import { withPath } from '../mount/failure.ts';
import { cfsProgram } from './cfs-program.ts';
import { runProgram, terminalOutput } from './command-line.ts';

/** `cfs`: all commands except mounting. Its commands: `command-table.ts`. */

let code = exitCode('ok');
const output = terminalOutput();
const context = {
  ...output,
  // Resolved on first use: a failure is reported like any other, and --help does not need it.
  get paths() {
    return pathsOf(process.env);
  },
  clock: systemClock,
  env: process.env,
};
const setCode = (ended: number): void => {
  code = ended;
};

void cfsProgram(context, setCode, process.argv.slice(2)).then((program) =>
  runProgram(program, process.argv, () => {
    const unwritten = output.whyUnwritten();
    // The command succeeded, but its output is incomplete.
    if (unwritten !== null && code === exitCode('ok')) throw withPath(unwritten, 'standard output');
    return code;
  }),
);
