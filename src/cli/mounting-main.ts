import { endProcess } from '../base/process-end.ts';
import { answerLauncher, readMountRequest } from '../mount/mount-request.ts';
import { mountMain } from '../mount/mounting-process.ts';
import { mountForShell } from './launch/shell-launch.ts';

/**
 * The mounting process (`dist/mount/mounting-process.cjs`). The launcher of `cfs-mount` gives it a request, `bin/cfs-mount` the command line.
 */

const { env } = process;
const request = readMountRequest(env);
const mounting =
  request === null
    ? mountForShell(env, process.argv)
    : mountMain(env, request, (outcome) => answerLauncher(env, outcome));
void mounting.then(endProcess);
