import { UsageError } from '../../base/errors.ts';
import { bashCompletion } from './bash-completion.ts';
import { fishCompletion } from './fish-completion.ts';
import { zshCompletion } from './zsh-completion.ts';

const SHELLS: Readonly<Record<string, () => string>> = {
  bash: bashCompletion,
  zsh: zshCompletion,
  fish: fishCompletion,
};

/** `cfs completion SHELL`: the script that a shell reads. @throws UsageError for a shell that we do not know */
export function completionOf(shell: string): string {
  const make = SHELLS[shell];
  if (make === undefined) throw new UsageError(`no completion for ${shell}: ${Object.keys(SHELLS).join(', ')}`);
  return make();
}
