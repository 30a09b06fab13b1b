import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { shellWords } from '../base/shell-word.ts';
import type { MountEvent } from '../control/event-model.ts';

/** A button of a notice, or the click on the notice itself. */
export interface NoticeAction {
  /** As D-Bus has it. `default`: the click on the notice (notification spec, "Actions"). */
  readonly id: 'default' | 'show' | 'compare' | 'mine' | 'theirs' | 'send';
  readonly label: string;
  /** Of sh(1). */
  readonly command: string;
  /** The title of a notice about its failure, with the first line of its standard error as the text. */
  readonly failure: string;
  /** The title of a notice about its success; null: the success can be seen. */
  readonly success: string | null;
}

/** What the commands of the actions name. */
export interface ActionPlace {
  /** The mount point. */
  readonly directory: string;
  /** The options of `cfs-mount` that start this mount again; null: the mount was not started by `cfs-mount`. */
  readonly flags: readonly string[] | null;
  /** The command that runs `cfs` and the one that runs `cfs-mount`; tests have their own. */
  readonly programs?: { readonly cfs: readonly string[]; readonly cfsMount: readonly string[] };
}

const PROGRAMS = {
  cfs: [process.execPath, fileURLToPath(new URL('../cli/cfs.js', import.meta.url))],
  cfsMount: [process.execPath, fileURLToPath(new URL('../cli/cfs-mount.js', import.meta.url))],
};

/**
 * What a person can do about an event from its notice. At most three have buttons: GNOME shows no more. A click on the notice shows the
 * files.
 */
export function noticeActions(
  event: MountEvent,
  { directory, flags, programs = PROGRAMS }: ActionPlace,
): NoticeAction[] {
  const cfs = (...words: string[]): string => shellWords([...programs.cfs, ...words]);
  const show = (...paths: string[]): NoticeAction[] => {
    const shown = { label: 'Show', command: showing(paths.map((path) => join(directory, path))) };
    const failure = 'The files cannot be shown';
    return (['default', 'show'] as const).map((id) => ({ id, ...shown, failure, success: null }));
  };
  switch (event.type) {
    case 'parked':
    case 'held-back':
      return show(event.path);
    case 'taken-back':
      return show(event.path, ...(event.copy === null ? [] : [event.copy]));
    case 'conflict': {
      const keep = (side: 'mine' | 'theirs', label: string): NoticeAction => {
        const command = cfs('conflicts', 'keep', side, '--', join(directory, event.copy));
        return { id: side, label, command, failure: 'The conflict is not settled', success: null };
      };
      return [
        ...show(event.path, event.copy).filter(({ id }) => id === 'default'),
        {
          id: 'compare',
          label: 'Compare',
          command: cfs('web', '--open'),
          failure: 'The page cannot be shown',
          success: null,
        },
        keep('mine', 'Keep mine'),
        keep('theirs', 'Keep theirs'),
      ];
    }
    case 'unmounted': {
      if (flags === null) return [];
      // A mount that a person has started meanwhile is not unmounted: it makes the first command fail, and pushes by itself.
      const command = `${shellWords([...programs.cfsMount, ...flags, '--', directory])} && ${cfs('umount', '--', directory)}`;
      const failure = 'Not all changes are in the cloud';
      return [{ id: 'send', label: 'Send now', command, failure, success: 'All changes are in the cloud' }];
    }
    default:
      return [];
  }
}

/** Selects the files in the file manager of the desktop (FileManager1 of freedesktop.org), or opens their folder. */
function showing(paths: readonly string[]): string {
  // A comma separates the elements of an array of dbus-send(1).
  const urls = paths.map((path) => pathToFileURL(path).href.replaceAll(',', '%2C')).join(',');
  const name = 'org.freedesktop.FileManager1';
  const call = ['dbus-send', '--session', '--print-reply', `--dest=${name}`, `/${name.replaceAll('.', '/')}`];
  const folder = dirname(paths[0] ?? '/');
  return `${shellWords([...call, `${name}.ShowItems`, `array:string:${urls}`, 'string:'])} || ${shellWords(['xdg-open', folder])}`;
}
