import { UsageError } from '../../base/errors.ts';
import { bashCompletion } from './bash-completion.ts';
import { fishCompletion } from './fish-completion.ts';
import { zshCompletion } from './zsh-completion.ts';

const SHELLS: Readonly<Record<string, () => string>> = {
  bash: bashCompletion,
  zsh: zshCompletion,
  fish: fishCompletion,
};

/** `cfs completion SHELL`: the completion script of a shell. @throws UsageError for an unknown shell */
export function completionOf(shell: string): string {
  const make = SHELLS[shell];
  if (make === undefined) throw new UsageError(`no completion for ${shell}: ${Object.keys(SHELLS).join(', ')}`);
  return make();
}
