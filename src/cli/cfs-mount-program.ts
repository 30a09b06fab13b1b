import type { Command } from 'commander';
import { versionWithNode } from '../base/program-version.ts';
import type { Options } from '../config/options.ts';
import { type Paths, pathsOf } from '../config/paths.ts';
import { readDashOOptions } from '../mount/dash-o-options.ts';
import { addRow, newCommand } from './command-line.ts';
import { CFS_MOUNT } from './command-table.ts';
import { Invocation } from './invocation.ts';
import type { MountFlags } from './launch/mount-command.ts';
import { addMountOptions, flagsOfCommandLine, loadedOptions } from './option-flags.ts';

export interface MountContext {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly print: (text: string) => void;
  readonly warn: (text: string) => void;
  /** For tests: another mounting program than `dist/mount/mounting-process.cjs`. */
  readonly program?: string;
}

/** Mounts as the parsed command line says. */
export type Mounting = (
  deps: MountContext & { readonly paths: Paths; readonly options: Options },
  flags: MountFlags,
) => Promise<void>;

/** The commander program of `cfs-mount`, which calls `mount` for a right command line. */
export function cfsMountProgram(context: MountContext, mount: Mounting): Command {
  const program = newCommand('cfs-mount')
    .version(versionWithNode(), '-V, --version', 'show the version, and that of Node')
    .addHelpText('after', '\nTo unmount: cfs umount <directory>, or fusermount3 -u <directory>.');
  return addMountOptions(addRow(program, CFS_MOUNT)).action(async (first: string, second: string | undefined) => {
    const given = new Invocation(program, [first, second]);
    const [source, directory] = second === undefined ? [null, first] : [first, second];
    const paths = pathsOf(context.env);
    const words = readDashOOptions(given.texts('-o'));
    const loaded = loadedOptions(program, context.env, paths, words);
    await mount(
      { ...context, paths, options: loaded.options },
      {
        directory,
        account: given.text('--account') ?? accountOf(source),
        foreground: given.has('--foreground'),
        words: words.mount,
        flags: flagsOfCommandLine(loaded),
      },
    );
  });
}

/** Placeholder sources, which people write into fstab(5). */
function accountOf(source: string | null): string | null {
  return source === null || ['', 'none', 'cfs', 'cfs-mount'].includes(source) ? null : source;
}
