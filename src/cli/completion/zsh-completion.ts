import { type Offer, type OfferedCommand, offeredCommands } from './completion-model.ts';

/** The script that zsh loads as `_cfs` from a folder of its fpath, or for `source <(cfs completion zsh)`. */
export function zshCompletion(): string {
  const commands = offeredCommands();
  return [
    '#compdef cfs cfs-mount',
    '# zsh completion for cfs and cfs-mount',
    '_cfs_account() {',
    '  local -a names',
    '  names=(${XDG_STATE_HOME:-$HOME/.local/state}/cfs/accounts/*(N:t))',
    "  _describe 'account' names",
    '}',
    ...commands.flatMap(functionOf),
    // Sourced, or called by the completion system, which puts the command into $service.
    'if [ "$funcstack[1]" = "_cfs" ]; then',
    '  case "$service" in',
    '    cfs-mount) _cfs_cfs_mount "$@";;',
    '    *) _cfs_cfs "$@";;',
    '  esac',
    'else',
    '  _cfs() { case "$service" in cfs-mount) _cfs_cfs_mount "$@";; *) _cfs_cfs "$@";; esac; }',
    '  compdef _cfs cfs cfs-mount',
    'fi',
    '',
  ].join('\n');
}

function functionOf({ path, words, flags, args }: OfferedCommand): string[] {
  const specs = flags.flatMap(({ names, help, value, isRepeated }) => {
    const tail = value === null ? '' : `:${described(names[0] ?? '')}:${actionOf(value)}`;
    // One name excludes the other; a flag that may be repeated excludes nothing.
    const apart = isRepeated || names.length < 2 ? '' : `(${names.join(' ')})`;
    const star = isRepeated ? '*' : '';
    return names.map((name) => `'${star}${apart}${name}${assignment(name, value)}[${described(help)}]${tail}'`);
  });
  const rest =
    words.length > 0
      ? ["'1:command:->command'", "'*::argument:->rest'"]
      : args.map(({ offer, help, isRepeated }) => `'${isRepeated ? '*' : ''}:${described(help)}:${actionOf(offer)}'`);
  const name = nameOf(path);
  const lines = [
    `${name}() {`,
    '  local curcontext="$curcontext" state line',
    '  local -a commands',
    '  typeset -A opt_args',
  ];
  lines.push(`  _arguments -C ${[...specs, ...rest].join(' \\\n    ')}`);
  if (words.length > 0) {
    lines.push('  case "$state" in', '    command)', '      commands=(');
    for (const { word, help } of words) lines.push(`        '${word}:${described(help)}'`);
    lines.push('      )', "      _describe 'command' commands;;", '    rest)', '      case "$line[1]" in');
    for (const { word } of words) lines.push(`        ${word}) ${nameOf(`${path} ${word}`)};;`);
    lines.push('      esac;;', '  esac');
  }
  return [...lines, '}'];
}

/** `--flag=` takes its value after the sign or as the next word. */
function assignment(name: string, value: Offer | null): string {
  if (value === null) return '';
  return name.startsWith('--') ? '=' : '+';
}

function nameOf(path: string): string {
  return `_cfs_${path.replace(/[^a-z]+/g, '_')}`;
}

function actionOf(offer: Offer): string {
  switch (offer.kind) {
    case 'path':
      return '_files';
    case 'directory':
      return '_files -/';
    case 'account':
      return '_cfs_account';
    case 'words':
      return `(${offer.words.join(' ')})`;
    case 'none':
      return ' ';
    default:
      return offer satisfies never;
  }
}

/** Colons and brackets end a description there, a quote the word. */
function described(text: string): string {
  return text.replace(/[[\]:\\]/g, '\\$&').replaceAll("'", "'\\''");
}
