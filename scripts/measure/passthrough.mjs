// The passthrough example of libfuse: the lower bound of the costs of a mount in user space.
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';

const SOURCE = '/usr/share/doc/libfuse3-dev/examples/passthrough_ll.c';

/**
 * Builds it into `directory`, where Debian's libfuse3-dev brings its source.
 * @returns the program; null elsewhere
 * @param {string} directory
 */
export function builtPassthrough(directory) {
  if (!existsSync(SOURCE) || spawnSync('pkg-config', ['fuse3']).status !== 0) return null;
  const flags = execFileSync('pkg-config', ['--cflags', '--libs', 'fuse3'], { encoding: 'utf8' }).trim().split(/\s+/);
  const program = join(directory, 'passthrough_ll');
  const defines = ['-DHAVE_UTIMENSAT', '-DHAVE_POSIX_FALLOCATE'];
  execFileSync('cc', ['-O2', '-w', ...defines, '-o', program, SOURCE, ...flags]);
  return program;
}
