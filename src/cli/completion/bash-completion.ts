import { shellWord } from '../../base/shell-word.ts';
import { type Offer, offeredCommands } from './completion-model.ts';

/**
 * The script for `source <(cfs completion bash)`. It needs only bash: not the package bash-completion, and no
 * start of Node at each Tab.
 */
export function bashCompletion(): string {
  const commands = offeredCommands();
  const words = commands.filter((command) => command.words.length > 0);
  const values = commands.flatMap(({ path, flags }) =>
    flags.flatMap(({ names, value }) =>
      value === null
        ? []
        : [`    ${names.map((name) => shellWord(`${path} ${name}`)).join('|')}) echo ${offerText(value)};;`],
    ),
  );
  const args = commands.flatMap(({ path, args: rows }) =>
    rows.map(({ offer, isRepeated }, at) => {
      // The last argument of a command with many stands for all following ones.
      const place = isRepeated ? `${shellWord(`${path} `)}*` : shellWord(`${path} ${at}`);
      return `    ${place}) echo ${offerText(offer)};;`;
    }),
  );
  return [
    '# bash completion for cfs and cfs-mount: source <(cfs completion bash)',
    '_cfs_commands() {',
    '  case "$1" in',
    ...words.map(({ path, words: rows }) => `    ${shellWord(path)}) echo ${rows.map(({ word }) => word).join(' ')};;`),
    '  esac',
    '}',
    '_cfs_flags() {',
    '  case "$1" in',
    ...commands.map(
      ({ path, flags }) => `    ${shellWord(path)}) echo ${flags.flatMap(({ names }) => names).join(' ')};;`,
    ),
    '  esac',
    '}',
    '# What follows a flag: nothing where the flag is a switch.',
    '_cfs_value() {',
    '  case "$1" in',
    ...values,
    '  esac',
    '}',
    '_cfs_argument() {',
    '  case "$1" in',
    ...args,
    '  esac',
    '}',
    FUNCTIONS,
    'complete -F _cfs cfs',
    'complete -F _cfs cfs-mount',
    '',
  ].join('\n');
}

const FUNCTIONS = `_cfs_offer() {
  local kind=$1 cur=$2
  shift 2
  case "$kind" in
    path) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$cur");;
    directory) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$cur");;
    account) mapfile -t COMPREPLY < <(compgen -W "$(command ls -1 "\${XDG_STATE_HOME:-$HOME/.local/state}/cfs/accounts" 2>/dev/null)" -- "$cur");;
    words) mapfile -t COMPREPLY < <(compgen -W "$*" -- "$cur");;
  esac
}
_cfs() {
  local cur=\${COMP_WORDS[COMP_CWORD]} path=\${COMP_WORDS[0]##*/} flag='' place=0 at word only_args=''
  # Bash takes a "=" for a word of its own.
  [ "$cur" = = ] && cur=''
  for ((at = 1; at < COMP_CWORD; at++)); do
    word=\${COMP_WORDS[at]}
    if [ "$word" = = ]; then continue; fi
    if [ -n "$flag" ]; then flag=''; continue; fi
    if [ -n "$only_args" ]; then place=$((place + 1)); continue; fi
    case "$word" in
      --) only_args=yes;;
      -*) [ -n "$(_cfs_value "$path $word")" ] && flag=$word;;
      *)
        case " $(_cfs_commands "$path") " in
          *" $word "*) path="$path $word"; place=0;;
          *) place=$((place + 1));;
        esac;;
    esac
  done
  COMPREPLY=()
  if [ -n "$flag" ]; then _cfs_offer_words "$(_cfs_value "$path $flag")" "$cur"; return; fi
  if [ -z "$only_args" ] && [ "\${cur:0:1}" = - ]; then _cfs_offer words "$cur" $(_cfs_flags "$path"); return; fi
  if [ "$place" = 0 ] && [ -n "$(_cfs_commands "$path")" ]; then _cfs_offer words "$cur" $(_cfs_commands "$path"); return; fi
  _cfs_offer_words "$(_cfs_argument "$path $place")" "$cur"
}
_cfs_offer_words() {
  local kind=\${1%% *}
  _cfs_offer "$kind" "$2" \${1#"$kind"}
}`;

function offerText(offer: Offer): string {
  return offer.kind === 'words' ? `words ${offer.words.join(' ')}` : offer.kind;
}
