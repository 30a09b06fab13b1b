import { type Offer, offeredCommands } from './completion-model.ts';

/** The script for `~/.config/fish/completions/cfs.fish`, or for `cfs completion fish | source`. */
export function fishCompletion(): string {
  const lines = [
    '# fish completion for cfs and cfs-mount',
    ...FUNCTIONS,
    'complete -c cfs -f',
    'complete -c cfs-mount -f',
  ];
  for (const { path, words, flags, args } of offeredCommands()) {
    const program = path.split(' ')[0] ?? '';
    const here = `-c ${program} -n ${quoted(`__cfs_is ${quoted(path)}`)}`;
    for (const { word, help } of words) lines.push(`complete ${here} -a ${word} -d ${quoted(help)}`);
    for (const { names, help, value } of flags) {
      const forms = names.map((name) => (name.startsWith('--') ? `-l ${name.slice(2)}` : `-s ${name.slice(1)}`));
      const needs = value === null ? '' : ` ${offerText(value, '-x')}`;
      lines.push(`complete ${here} ${forms.join(' ')}${needs} -d ${quoted(help)}`);
    }
    const offers = new Set(args.map(({ offer }) => offerText(offer, '')).filter((text) => text !== ''));
    for (const offer of offers) lines.push(`complete ${here} ${offer}`);
  }
  return `${lines.join('\n')}\n`;
}

/** The leading words of the command line that name the command. */
const FUNCTIONS = [
  'function __cfs_commands',
  '  switch "$argv"',
  ...offeredCommands()
    .filter(({ words }) => words.length > 0)
    .map(({ path, words }) => `    case ${quoted(path)}; printf '%s\\n' ${words.map(({ word }) => word).join(' ')}`),
  '  end',
  'end',
  'function __cfs_is',
  '  set -l words (commandline -opc)',
  '  set -l path (path basename $words[1])',
  '  for word in $words[2..-1]',
  '    contains -- $word (__cfs_commands $path); and set path "$path $word"',
  '  end',
  '  test "$path" = "$argv[1]"',
  'end',
  'function __cfs_accounts',
  '  set -l state $XDG_STATE_HOME',
  '  test -n "$state"; or set state ~/.local/state',
  '  command ls -1 $state/cfs/accounts 2>/dev/null',
  'end',
];

/** @param none for a value that cannot be completed */
function offerText(offer: Offer, none: string): string {
  switch (offer.kind) {
    case 'path':
      return '-r -F';
    case 'directory':
      return "-x -a '(__fish_complete_directories)'";
    case 'account':
      return "-x -a '(__cfs_accounts)'";
    case 'words':
      return `-x -a ${quoted(offer.words.join(' '))}`;
    case 'none':
      return none;
    default:
      return offer satisfies never;
  }
}

function quoted(text: string): string {
  return `'${text.replace(/[\\']/g, '\\$&')}'`;
}
